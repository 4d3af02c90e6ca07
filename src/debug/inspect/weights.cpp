#include "src/debug/inspect/weights.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "kernels/common/error.h"
#include "models/lora/registry.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/debug/inspect/weights_source.h"
#include "src/hf/weights.h"

namespace lft::debug {
namespace {

constexpr size_t kShownNames = 20;

/// Sums over one module; what the row is made of.
struct Sums {
  ModuleChange row;
  double squares_a = 0, squares_difference = 0;
  std::vector<std::string> unchanged;
};

/// "lora_A" of "model.q_proj.lora_A.weight", "bias" of "model.q_proj.bias"; the rest is the module.
std::pair<std::string, std::string> split_name(const std::string& tensor) {
  std::vector<std::string> parts = {"base_layer"};
  for (const lora::AdapterTensor& of_adapter : lora::adapter_tensors())
    parts.push_back(of_adapter.name);
  for (const std::string& part : parts) {
    if (const size_t at = tensor.rfind("." + part); at != std::string::npos)
      return {tensor.substr(0, at), part};
  }
  const size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? std::pair{tensor, tensor}
                                  : std::pair{tensor.substr(0, dot), tensor.substr(dot + 1)};
}

int64_t non_finite(const at::Tensor& tensor) {
  return tensor.numel() - at::isfinite(tensor).sum().item<int64_t>();
}

void note_non_finite(Sums& sums, const std::string& part, const char* side,
                     const at::Tensor& tensor) {
  if (const int64_t count = non_finite(tensor); count > 0) {
    sums.row.notes.push_back(part + ": " + std::to_string(count) + " not finite in " + side);
  }
}

/// In double, whatever the two are stored in. Equal infinities and NaNs at one place are no change.
void add_tensor(Sums& sums, const std::string& part, const at::Tensor& stored_a,
                const at::Tensor& stored_b) {
  const at::Tensor a = stored_a.to(at::kDouble), b = stored_b.to(at::kDouble);
  const at::Tensor differs =
      at::ne(a, b).logical_and_(at::logical_and(at::isnan(a), at::isnan(b)).logical_not_());
  const at::Tensor difference = at::where(differs, at::sub(b, a), at::zeros({}, at::kDouble));
  const int64_t changed = differs.sum().item<int64_t>();
  ++sums.row.tensors;
  sums.row.elements += a.numel();
  sums.row.changed += changed;
  if (changed > 0) {
    ++sums.row.tensors_changed;
    const double most = difference.abs().max().item<double>();
    sums.row.max_abs =
        std::isnan(most) || std::isnan(sums.row.max_abs) ? NAN : std::max(sums.row.max_abs, most);
  } else {
    sums.unchanged.push_back(part);
  }
  sums.squares_a += a.square().sum().item<double>();
  sums.squares_difference += difference.square().sum().item<double>();
  note_non_finite(sums, part, "A", a);
  note_non_finite(sums, part, "B", b);
}

ModuleChange finish(Sums sums) {
  ModuleChange& row = sums.row;
  row.relative = sums.squares_difference == 0
                     ? 0
                     : std::sqrt(sums.squares_difference) / std::sqrt(sums.squares_a);
  if (row.tensors_changed > 0) {
    for (const std::string& part : sums.unchanged) row.notes.push_back(part + " unchanged");
  }
  return std::move(row);
}

/// NaN first, then the largest change; by name where it is the same.
bool before(const ModuleChange& x, const ModuleChange& y) {
  if (std::isnan(x.relative) != std::isnan(y.relative)) return std::isnan(x.relative);
  if (!std::isnan(x.relative) && x.relative != y.relative) return x.relative > y.relative;
  return x.module < y.module;
}

std::string row_line(const std::string& relative, const std::string& max_abs,
                     const std::string& share, const std::string& rest) {
  char text[64];
  std::snprintf(text, sizeof text, "%10s  %10s  %9s  ", relative.c_str(), max_abs.c_str(),
                share.c_str());
  return text + rest;
}

std::string change_line(const ModuleChange& row) {
  char share[16];
  std::snprintf(share, sizeof share, "%.4g%%",
                row.elements == 0
                    ? 0
                    : 100.0 * static_cast<double>(row.changed) / static_cast<double>(row.elements));
  std::string name = escape_text(row.module);
  for (size_t i = 0; i < row.notes.size(); ++i)
    name += (i == 0 ? "  (" : ", ") + escape_text(row.notes[i]);
  if (!row.notes.empty()) name += ")";
  return row_line(format_number(row.relative), format_number(row.max_abs), share, name);
}

void add_names(std::vector<std::string>& lines, const std::string& title,
               const std::vector<std::string>& names) {
  if (names.empty()) return;
  lines.push_back(std::to_string(names.size()) + " tensors " + title + ":");
  for (size_t i = 0; i < std::min(kShownNames, names.size()); ++i)
    lines.push_back("  " + escape_text(names[i]));
  if (names.size() > kShownNames)
    lines.push_back("  and " + std::to_string(names.size() - kShownNames) + " more");
}

}  // namespace

bool WeightsReport::changed() const {
  return !only_a.empty() || !only_b.empty() || !shapes.empty() ||
         std::any_of(modules.begin(), modules.end(),
                     [](const ModuleChange& row) { return row.changed > 0; });
}

WeightsReport compare_weights(const std::string& path_a, const std::string& path_b) {
  const WeightsSource a = open_weights(path_a), b = open_weights(path_b);
  WeightsReport report{.a = a.kind + " " + a.path,
                       .b = b.kind + " " + b.path,
                       .modules = {},
                       .only_a = {},
                       .only_b = {},
                       .shapes = {}};
  std::map<std::string, Sums> sums;
  for (const auto& [name, place] : b.tensors) {
    if (!a.tensors.contains(name)) report.only_b.push_back(name);
  }
  for (const auto& [name, place] : a.tensors) {
    if (!b.tensors.contains(name)) {
      report.only_a.push_back(name);
      continue;
    }
    const io::TensorInfo &info_a = a.info(name), &info_b = b.info(name);
    if (info_a.shape != info_b.shape) {
      report.shapes.push_back(name + ": " + hf::shape_text(info_a.shape) + " and " +
                              hf::shape_text(info_b.shape));
      continue;
    }
    const auto [module, part] = split_name(name);
    Sums& of_module = sums[module];
    if (info_a.dtype != info_b.dtype) {
      of_module.row.notes.push_back(part + ": " + io::dtype_name(info_a.dtype) + " and " +
                                    io::dtype_name(info_b.dtype));
    }
    add_tensor(of_module, part, a.read(name), b.read(name));
  }
  if (report.only_a.size() == a.tensors.size() && report.only_b.size() == b.tensors.size()) {
    throw Error(
        ErrorKind::kUsage,
        {.what = "the two have no tensor in common",
         .where = path_a + " and " + path_b,
         .found = a.kind + " of " + std::to_string(a.tensors.size()) + " tensors, " + b.kind +
                  " of " + std::to_string(b.tensors.size()),
         .expected = "two of one kind, or a checkpoint step and the adapter of its run",
         .next = "compare what one run wrote: lft debug weights OUT/checkpoints/step-0 OUT"});
  }
  for (auto& [module, of_module] : sums) {
    of_module.row.module = module;
    report.modules.push_back(finish(std::move(of_module)));
  }
  std::sort(report.modules.begin(), report.modules.end(), before);
  return report;
}

std::vector<std::string> weights_lines(const WeightsReport& report) {
  std::vector<std::string> lines = {"A  " + escape_text(report.a, 1000),
                                    "B  " + escape_text(report.b, 1000),
                                    row_line("relative", "max abs", "elements", "module")};
  std::vector<std::string> same;
  for (const ModuleChange& row : report.modules) {
    if (row.changed > 0 || !row.notes.empty()) {
      lines.push_back(change_line(row));
    } else {
      same.push_back(row.module);
    }
  }
  const int64_t changed = std::count_if(report.modules.begin(), report.modules.end(),
                                        [](const ModuleChange& row) { return row.changed > 0; });
  if (!same.empty()) {
    lines.push_back(std::to_string(same.size()) + " modules did not change:");
    for (size_t i = 0; i < std::min(kShownNames, same.size()); ++i)
      lines.push_back("  " + escape_text(same[i]));
    if (same.size() > kShownNames)
      lines.push_back("  and " + std::to_string(same.size() - kShownNames) + " more");
  }
  add_names(lines, "only in A", report.only_a);
  add_names(lines, "only in B", report.only_b);
  add_names(lines, "of other shapes", report.shapes);
  lines.push_back(report.changed() ? std::to_string(changed) + " of " +
                                         std::to_string(report.modules.size()) + " modules changed"
                                   : "nothing changed");
  return lines;
}

ErrorInfo unchanged_error(const WeightsReport& report) {
  return {
      .what = "no weight changed",
      .where = report.a + " and " + report.b,
      .found = "the same values in all of " + std::to_string(report.modules.size()) + " modules",
      .expected = "a change in one of them",
      .next =
          "where one was trained from the other, lft debug overfit RECIPE names what keeps the run "
          "from learning"};
}

}  // namespace lft::debug
