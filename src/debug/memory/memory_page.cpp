#include "src/debug/memory/memory_page.h"

#include <algorithm>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/debug/memory/memory.h"
#include "src/report/html.h"

namespace lft::debug {
namespace {

constexpr double kPageWidth = 1100, kHeight = 380, kLeft = 70, kBottom = 28, kTop = 18;
constexpr size_t kMostModules = 24;

constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root { --page: #f6f7f9; --card: #ffffff; --ink: #1b2130; --dim: #667085; --line: #e3e7ee;
  --mark: #c2255c;
  --u0: #94a3b8; --u1: #2563eb; --u2: #7c3aed; --u3: #b7791f; --u4: #0f8a6a; --u5: #d9480f;
    --u6: #60a5fa; --u7: #c2255c; --u8: #cbd5e1; }
@media (prefers-color-scheme: dark) { :root { --page: #10141c; --card: #181e29; --ink: #e6eaf2;
  --dim: #98a2b3; --line: #2a3242;
  --mark: #f783ac; --u0: #64748b; --u1: #6ea0ff; --u2: #b197fc; --u3: #e8b45a; --u4: #4fd1a5;
    --u5: #ff9a62; --u6: #93c5fd;
  --u7: #f783ac; --u8: #475569; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 56px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 30px 0 10px; }
.under { color: var(--dim); margin: 4px 0 20px; overflow-wrap: anywhere; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 14px 16px; }
.leak { border-color: var(--mark); margin-bottom: 14px; }
.leak b { color: var(--mark); }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--dim); font-size: 12px; }
.keys { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--dim);
  margin-top: 8px; }
.keys span::before { content: ""; display: inline-block; width: 12px; height: 12px;
  border-radius: 3px; background: var(--c); margin: 0 6px -1px 0; }
.tables { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: 14px;
  align-items: start; }
@media (max-width: 760px) { .tables { grid-template-columns: minmax(0, 1fr); } }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 6px 10px; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
tr:last-child td { border-bottom: 0; }
th { color: var(--dim); font-weight: 500; font-size: 13px; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
</style>
)";

std::string page_size(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string one_digit(double value) { return format_number(value, "%.1f"); }

/// Converts events and bytes to drawing coordinates.
struct Axes {
  int64_t first, last;
  double most;
  double x(int64_t event) const {
    return kLeft + (kPageWidth - kLeft) * static_cast<double>(event - first) /
                       static_cast<double>(std::max<int64_t>(1, last - first));
  }
  double y(double bytes) const {
    return kTop + (kHeight - kTop - kBottom) * (1 - bytes / std::max(1.0, most));
  }
};

/// The area between the sums without and with this use.
std::string area(const MemoryPicture& picture, size_t use, const Axes& axes) {
  std::string upper, lower;
  bool any = false;
  for (const MemoryMoment& moment : picture.timeline) {
    double below = 0;
    for (size_t u = 0; u < use; ++u) below += static_cast<double>(moment.by_use[u]);
    const auto own = static_cast<double>(moment.by_use[use]);
    any |= own > 0;
    const std::string x = one_digit(axes.x(moment.event)) + ",";
    upper += x + one_digit(axes.y(below + own)) + " ";
    lower.insert(0, x + one_digit(axes.y(below)) + " ");
  }
  if (!any) return "";
  return "<polygon fill=\"var(--u" + std::to_string(use) + ")\" points=\"" + upper + lower +
         "\"><title>" + use_name(static_cast<MemoryUse>(use)) + "</title></polygon>\n";
}

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return "<line x1=\"" + one_digit(x1) + "\" y1=\"" + one_digit(y1) + "\" x2=\"" + one_digit(x2) +
         "\" y2=\"" + one_digit(y2) + "\" style=\"" + style + "\"/>\n";
}

std::string svg_text(double x, double y, const char* anchor, const std::string& what) {
  return "<text x=\"" + one_digit(x) + "\" y=\"" + one_digit(y) + "\" text-anchor=\"" + anchor +
         "\">" + report::html_text(what) + "</text>\n";
}

std::string drawing(const MemoryPicture& picture, const std::vector<StepMarks>& steps) {
  const Axes axes{steps.front().begin, steps.back().end,
                  1.06 * static_cast<double>(picture.peak.bytes)};
  std::string svg = "<svg viewBox=\"0 0 " + one_digit(kPageWidth) + " " + one_digit(kHeight) +
                    "\" role=\"img\" aria-label=\"memory over the steps\">\n";
  for (int tick = 0; tick <= 4; ++tick) {
    const double bytes = axes.most * tick / 4, y = axes.y(bytes);
    svg += line(kLeft, y, kPageWidth, y, "stroke:var(--line)") +
           svg_text(kLeft - 8, y + 4, "end", format_bytes(bytes));
  }
  for (size_t use = 0; use < kMemoryUses; ++use) svg += area(picture, use, axes);
  for (size_t i = 0; i < steps.size(); ++i) {
    const double x = axes.x(steps[i].begin);
    svg += line(x, kTop, x, kHeight - kBottom, "stroke:var(--dim);stroke-dasharray:3 4");
    svg += svg_text((x + axes.x(steps[i].end)) / 2, kHeight - 8, "middle",
                    "step " + std::to_string(i + 1));
  }
  const double x = axes.x(picture.peak.event);
  svg += line(x, kTop - 4, x, axes.y(static_cast<double>(picture.peak.bytes)),
              "stroke:var(--mark);stroke-width:2");
  svg += svg_text(x, kTop - 6, x > kPageWidth - 80 ? "end" : "middle",
                  "peak " + page_size(picture.peak.bytes));
  return svg + "</svg>\n";
}

std::string row(const std::string& name, int64_t bytes, const std::string& last) {
  return "<tr><td>" + report::html_text(name) + "</td><td class=\"n\">" + page_size(bytes) +
         "</td><td class=\"n\">" + report::html_text(last) + "</td></tr>\n";
}

std::string tables(const MemoryPicture& picture) {
  std::string parts, modules;
  for (size_t use = 0; use < kMemoryUses; ++use) {
    const int64_t bytes = picture.peak.by_use[use];
    if (bytes == 0) continue;
    parts += row(
        use_name(static_cast<MemoryUse>(use)), bytes,
        format_number(100.0 * static_cast<double>(bytes) / static_cast<double>(picture.peak.bytes),
                      "%.1f") +
            " %");
  }
  for (size_t i = 0; i < std::min(kMostModules, picture.modules.size()); ++i) {
    const MemoryModule& module = picture.modules[i];
    modules += row(module.name, module.bytes, std::to_string(module.blocks));
  }
  return "<div class=\"tables\">\n<section><h2>Peak by use</h2><div "
         "class=\"card\"><table><tr><th>use</th><th class=\"n\">size</th>"
         "<th class=\"n\">share</th></tr>\n" +
         parts +
         "</table></div></section>\n<section><h2>Peak by module</h2><div "
         "class=\"card\"><table><tr><th>module</th>"
         "<th class=\"n\">size</th><th class=\"n\">blocks</th></tr>\n" +
         modules + "</table></div></section>\n</div>\n";
}

std::string leaks(const MemoryPicture& picture) {
  if (picture.leaks.empty()) return "";
  std::string items;
  for (const train::LeakGroup& leak : picture.leaks) {
    items += "<li>" + report::html_text(std::to_string(leak.count) + " x " + leak.what) + ", " +
             page_size(leak.bytes) + "</li>\n";
  }
  return "<div class=\"card leak\"><b>Every step leaves tensors behind</b><ul>" + items +
         "</ul></div>\n";
}

}  // namespace

std::string memory_page(const std::string& title, const std::string& under,
                        const MemoryPicture& picture, const std::vector<StepMarks>& steps) {
  std::string keys;
  for (size_t use = 0; use < kMemoryUses; ++use) {
    const bool seen = std::ranges::any_of(
        picture.timeline, [&](const MemoryMoment& moment) { return moment.by_use[use] > 0; });
    if (seen)
      keys += "<span style=\"--c: var(--u" + std::to_string(use) + ")\">" +
              use_name(static_cast<MemoryUse>(use)) + "</span>\n";
  }
  return std::string(kHead) + "<title>" + report::html_text(title) +
         "</title>\n</head>\n<body>\n<main>\n<h1>" + report::html_text(title) +
         "</h1>\n<p class=\"under\">" + report::html_text(under) + "</p>\n" + leaks(picture) +
         "<div class=\"card\">\n" + drawing(picture, steps) + "<div class=\"keys\">" + keys +
         "</div>\n</div>\n" + tables(picture) + "</main>\n</body>\n</html>\n";
}

}  // namespace lft::debug
