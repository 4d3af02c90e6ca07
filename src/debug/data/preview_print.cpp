#include "src/debug/data/preview_print.h"

#include <cstdint>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/debug/data/preview.h"
#include "src/io/png_write.h"
#include "src/report/html.h"

namespace lft::debug {
namespace {

constexpr const char* kPage = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>Preview</title>
<style>
:root { --page: #f6f7f9; --card: #ffffff; --ink: #1b2130; --dim: #667085; --line: #e3e7ee;
  --good: #0b6b3c; --good-back: #d8f2e3; --bad: #c2255c; }
@media (prefers-color-scheme: dark) {
  :root { --page: #10141c; --card: #181e29; --ink: #e6eaf2; --dim: #98a2b3; --line: #2a3242;
    --good: #8ce9b3; --good-back: #16402a; --bad: #f783ac; }
}
body { margin: 0 auto; max-width: 1180px; padding: 28px 20px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 26px; margin: 0; }
h2 { font-size: 17px; margin: 0 0 8px; overflow-wrap: anywhere; }
p { margin: 0 0 4px; color: var(--dim); overflow-wrap: anywhere; }
section { display: grid; grid-template-columns: minmax(0, 340px) minmax(0, 1fr); gap: 20px;
  margin-top: 18px; padding: 18px; background: var(--card);
  border: 1px solid var(--line); border-radius: 12px; }
section.text { grid-template-columns: minmax(0, 1fr); }
figure { margin: 0 0 12px; }
img { width: 100%; border-radius: 8px; }
img.small { image-rendering: pixelated; }
.tiles { display: grid; gap: 3px; margin-top: 8px; }
.tiles img { display: block; border-radius: 2px; }
figcaption { color: var(--dim); font-size: 13px; overflow-wrap: anywhere; }
pre { margin: 12px 0 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 14px/1.6 ui-monospace, "DejaVu Sans Mono", monospace; }
mark { color: var(--good); background: var(--good-back); border-radius: 3px; }
i { color: var(--dim); }
del { color: var(--bad); }
.bad { color: var(--bad); }
@media (max-width: 800px) { section { grid-template-columns: minmax(0, 1fr); } }
</style>
</head>
<body>
)";

std::string title_of(const Preview& preview) {
  return "id " + quote_text(preview.id, 200) + "  " + escape_text(preview.where, 400);
}

std::string tokens_line(const Preview& p, const recipe::Recipe& recipe) {
  const double share =
      p.tokens == 0 ? 0 : 100 * static_cast<double>(p.supervised) / static_cast<double>(p.tokens);
  std::string line = std::to_string(p.tokens) + ", " + std::to_string(p.image_positions) +
                     " of them image positions, " + std::to_string(p.supervised) + " supervised (" +
                     format_number(share, "%.1f") + "%)";
  if (p.cut > 0) {
    line += "; " + std::to_string(p.cut) +
            " more beyond data.max_tokens = " + std::to_string(recipe.data.max_tokens) +
            " or the model's positions, " + std::to_string(p.cut_supervised) +
            " of them supervised";
  }
  return line;
}

std::string shape_line(const family::ImageShape& shape) {
  const std::string one = std::to_string(shape.width) + " x " + std::to_string(shape.height);
  return shape.tiles == 1 ? one : std::to_string(shape.tiles) + " tiles of " + one;
}

std::string image_line(const PreviewImage& image, const recipe::Recipe& recipe) {
  const std::string before =
      image.width > 0 ? std::to_string(image.width) + " x " + std::to_string(image.height)
                      : "prepared";
  return escape_text(image.name, 400) + "  " + before + " -> " + shape_line(image.square.shape) +
         " (" + recipe.data.image_fit.word() + ")";
}

/// Empty if every answer is trained on.
std::string masked_line(const Preview& preview) {
  if (preview.masked == 0) return "";
  return std::to_string(preview.masked) + " of " + std::to_string(preview.answers) +
         " answers, by weight 0 or loss false: excluded from the loss";
}

std::string ids_line(const Preview& preview) { return "sha256 " + preview.ids_sha256; }

/// Makes a text safe for the terminal: it cannot move the cursor; line breaks are kept.
std::string safe(const std::string& text) {
  return escape_text(text, SIZE_MAX, /*keep_lines=*/true);
}

std::string piece_text(const PreviewPiece& piece, bool terminal) {
  if (piece.kind == PreviewPiece::kText) return safe(piece.text);
  if (piece.kind == PreviewPiece::kMasked)
    return terminal ? "\x1b[9;31m" + safe(piece.text) + "\x1b[0m" : "((" + safe(piece.text) + "))";
  if (piece.kind == PreviewPiece::kMark)
    return terminal ? "\x1b[2m" + safe(piece.text) + "\x1b[0m" : safe(piece.text);
  return terminal ? "\x1b[1;32m" + safe(piece.text) + "\x1b[0m" : "[[" + safe(piece.text) + "]]";
}

std::string piece_html(const PreviewPiece& piece) {
  const std::string text = report::html_text(safe(piece.text));
  if (piece.kind == PreviewPiece::kText) return text;
  if (piece.kind == PreviewPiece::kMasked) return "<del>" + text + "</del>";
  return piece.kind == PreviewPiece::kMark ? "<i>" + text + "</i>" : "<mark>" + text + "</mark>";
}

/// One tile as an element of the page.
std::string tile_html(const data::PixelImage& image, int64_t tile) {
  const family::ImageShape& shape = image.shape;
  const auto plane = static_cast<size_t>(shape.height * shape.width);
  io::RgbImage rgb{shape.width, shape.height, io::Pixels(3 * plane)};
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < plane; ++i)
      rgb.rgb_hwc[3 * i + c] = image.chw[(3 * static_cast<size_t>(tile) + c) * plane + i];
  }
  const char* small = shape.width < 150 ? " class=\"small\"" : "";
  return std::string("<img alt=\"\"") + small + " src=\"" + report::image_url(io::png_file(rgb)) +
         "\">";
}

/// The whole picture, then its tiles as a grid in the positions that they have in it.
std::string figure(const PreviewImage& image, const recipe::Recipe& recipe) {
  const family::ImageShape& shape = image.square.shape;
  std::string out = "<figure>";
  const int64_t cells = shape.rows * shape.columns;
  if (cells + 1 == shape.tiles && cells > 0) {
    const int64_t first = image.whole_first ? 1 : 0;
    out += tile_html(image.square, image.whole_first ? 0 : cells);
    out += "<div class=\"tiles\" style=\"grid-template-columns: repeat(" +
           std::to_string(shape.columns) + ", 1fr)\">";
    for (int64_t tile = 0; tile < cells; ++tile) out += tile_html(image.square, first + tile);
    out += "</div>";
  } else {
    for (int64_t tile = 0; tile < shape.tiles; ++tile) out += tile_html(image.square, tile);
  }
  return out + "<figcaption>" + report::html_text(image_line(image, recipe)) +
         "</figcaption></figure>\n";
}

std::string section(const Preview& preview, const recipe::Recipe& recipe) {
  const auto line = [](const std::string& text, const char* kind = "") {
    return std::string("<p") + kind + ">" + report::html_text(text) + "</p>\n";
  };
  std::string out = preview.images.empty() ? "<section class=\"text\">\n" : "<section>\n<div>\n";
  for (const PreviewImage& image : preview.images) out += figure(image, recipe);
  if (!preview.images.empty()) out += "</div>\n";
  out += "<div>\n<h2>" + report::html_text(title_of(preview)) + "</h2>\n";
  if (!preview.left_out.empty())
    return out + line("left out: " + escape_text(preview.left_out, 1000), " class=\"bad\"") +
           "</div>\n</section>\n";
  out += line("tokens " + tokens_line(preview, recipe)) + line("ids " + ids_line(preview));
  if (preview.masked > 0) out += line("masked " + masked_line(preview), " class=\"bad\"");
  out += "<pre>";
  for (const PreviewPiece& piece : preview.pieces) out += piece_html(piece);
  return out + "</pre>\n</div>\n</section>\n";
}

}  // namespace

std::string preview_text(const Preview& preview, const recipe::Recipe& recipe, bool terminal) {
  std::string out = "sample   " + title_of(preview) + "\n";
  if (!preview.left_out.empty())
    return out + "left out " + escape_text(preview.left_out, 1000) + "\n";
  out += "tokens   " + tokens_line(preview, recipe) + "\n";
  if (preview.masked > 0) out += "masked   " + masked_line(preview) + "\n";
  for (const PreviewImage& image : preview.images)
    out += "image    " + image_line(image, recipe) + "\n";
  out += "ids      " + ids_line(preview) + "\n";
  for (const PreviewPiece& piece : preview.pieces) out += piece_text(piece, terminal);
  return out + "\n";
}

std::string preview_page(const std::vector<Preview>& previews, const recipe::Recipe& recipe,
                         const std::vector<Preview>& others, const std::string& other) {
  std::string page = kPage;
  page += "<h1>Preview</h1>\n<p>" +
          report::html_text(escape_text(recipe.data.train.text(), 400) + ", template " +
                            recipe.data.chat_template + ": " +
                            std::to_string(static_cast<int64_t>(previews.size())) +
                            (previews.size() == 1 ? " sample" : " samples") +
                            ". Highlighted: supervised. Struck through: an answer that its row "
                            "excludes from the loss.") +
          "</p>\n";
  for (size_t i = 0; i < previews.size(); ++i) {
    page += section(previews[i], recipe);
    if (i >= others.size()) continue;
    page +=
        "<p>" +
        report::html_text(escape_text(
            "under --template " + other + ": " + prompt_difference(previews[i], others[i]), 2000)) +
        "</p>\n" + section(others[i], recipe);
  }
  return page + "</body>\n</html>\n";
}

}  // namespace lft::debug
