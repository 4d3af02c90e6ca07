#include "src/debug/inspect/weights.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include "kernels/common/error.h"
#include "models/lora/registry.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights.h"
#include "src/io/files.h"
#include "src/io/safetensors.h"

namespace lft::debug {
namespace {

namespace fs = std::filesystem;
constexpr size_t kShownNames = 20;
constexpr char kTrainables[] = "/trainables.safetensors";

/// The tensors of a directory of any kind, by canonical name.
struct WeightsSource {
  std::string path, kind;  // kind: adapter, checkpoint, incident, model
  std::vector<io::SafetensorsFile> files = {};
  std::map<std::string, hf::ModelDir::Place> tensors = {};

  const io::TensorInfo& info(const std::string& name) const {
    const hf::ModelDir::Place& place = tensors.at(name);
    return files[place.file].info(place.stored_name);
  }
  at::Tensor read(const std::string& name) const {  // as stored, on the CPU
    return hf::read_tensor(files[tensors.at(name).file], info(name));
  }
};

WeightsSource open_adapter(const std::string& path) {
  const hf::AdapterDir dir = hf::AdapterDir::open(path);
  WeightsSource source{.path = path, .kind = "adapter"};
  source.files.emplace_back(dir.weights());
  for (const auto& [name, stored] : dir.stored_names) source.tensors[name] = {0, stored};
  return source;
}

WeightsSource open_model(const std::string& path) {
  hf::ModelDir dir = hf::ModelDir::open(path);
  return {.path = path,
          .kind = "model",
          .files = std::move(dir.files),
          .tensors = std::move(dir.tensors)};
}

WeightsSource open_trainables(const std::string& path, const std::string& kind) {
  WeightsSource source{.path = path, .kind = kind};
  source.files.emplace_back(path + kTrainables);
  for (const auto& [name, info] : source.files.front().tensors()) source.tensors[name] = {0, name};
  return source;
}

/// The path of a step that verifies: `path` itself, or the newest below it; "" if there is none at
/// all.
std::string verified_step(const std::string& path, bool is_step) {
  const std::vector<checkpoint::CheckpointStatus> steps =
      is_step ? std::vector{checkpoint::inspect_checkpoint(path)}
              : checkpoint::list_checkpoints(path, /*verify=*/true);
  for (const checkpoint::CheckpointStatus& step : steps) {
    if (step.fault.empty()) return step.path;
  }
  if (steps.empty()) return "";
  refuse(ErrorKind::kCheckpoint, "the checkpoint does not verify", steps.front().path,
         steps.front().fault, {}, "lft checkpoint ls shows which steps do");
}

[[noreturn]] void no_source(const std::string& path, const std::string& found) {
  refuse(ErrorKind::kInput, "no weights to compare", path, found,
         "an adapter directory, a checkpoint step, an "
         "incident, an output_dir or a model directory",
         "lft checkpoint ls OUTPUT_DIR shows the steps of a run");
}

/// See compare_weights().
WeightsSource open_weights(const std::string& given) {
  if (!io::is_directory(given)) no_source(given, io::path_exists(given) ? "a file" : "nothing");
  const std::string path = io::absolute_path(given);
  if (io::path_exists(path + "/adapter_config.json") ||
      io::path_exists(path + "/" + hf::kPartsWeights))
    return open_adapter(path);
  if (io::path_exists(path + "/MANIFEST") ||
      fs::path(path).filename().string().starts_with("step-")) {
    if (!io::path_exists(path + "/incident.json"))
      return open_trainables(verified_step(path, /*is_step=*/true), "checkpoint");
    return open_trainables(path, "incident");
  }
  if (io::path_exists(path + "/config.json")) return open_model(path);
  for (const char* product : {"/adapter", "/parts", "/model"}) {
    if (io::is_directory(path + product)) return open_weights(path + product);
  }
  const std::string steps = io::is_directory(path + "/checkpoints") ? path + "/checkpoints" : path;
  if (const std::string step = verified_step(steps, /*is_step=*/false); !step.empty())
    return open_trainables(step, "checkpoint");
  no_source(path, "a folder with none of them");
}

/// Sums over one module, for its row.
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

/// Computed in double for all dtypes. Equal infinities and NaNs at one position are no change.
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

/// NaN first, then the largest change; equal ones by name.
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
  const double share = row.elements == 0 ? 0
                                         : 100.0 * static_cast<double>(row.changed) /
                                               static_cast<double>(row.elements);
  std::string name = escape_text(row.module);
  for (size_t i = 0; i < row.notes.size(); ++i)
    name += (i == 0 ? "  (" : ", ") + escape_text(row.notes[i]);
  if (!row.notes.empty()) name += ")";
  return row_line(format_number(row.relative), format_number(row.max_abs),
                  format_number(share, "%.4g%%"), name);
}

void add_names(std::vector<std::string>& lines, const std::string& title,
               const std::vector<std::string>& names) {
  if (names.empty()) return;
  lines.push_back(std::to_string(names.size()) + " " + title + ":");
  for (size_t i = 0; i < std::min(kShownNames, names.size()); ++i)
    lines.push_back("  " + escape_text(names[i]));
  if (names.size() > kShownNames)
    lines.push_back("  and " + std::to_string(names.size() - kShownNames) + " more");
}

}  // namespace

bool WeightsReport::changed() const {
  return !only_a.empty() || !only_b.empty() || !shapes.empty() ||
         std::ranges::any_of(modules, [](const ModuleChange& row) { return row.changed > 0; });
}

WeightsReport compare_weights(const std::string& path_a, const std::string& path_b) {
  const WeightsSource a = open_weights(path_a), b = open_weights(path_b);
  WeightsReport report;
  report.a = a.kind + " " + a.path;
  report.b = b.kind + " " + b.path;
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
    refuse(ErrorKind::kUsage, "the two have no tensor in common", path_a + " and " + path_b,
           a.kind + " of " + std::to_string(a.tensors.size()) + " tensors, " + b.kind + " of " +
               std::to_string(b.tensors.size()),
           "two of one kind, or a checkpoint step and the adapter of its run",
           "compare what one run wrote: lft debug weights OUT/checkpoints/step-0 OUT");
  }
  for (auto& [module, of_module] : sums) {
    of_module.row.module = module;
    report.modules.push_back(finish(std::move(of_module)));
  }
  std::ranges::sort(report.modules, before);
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
  const int64_t changed = std::ranges::count_if(
      report.modules, [](const ModuleChange& row) { return row.changed > 0; });
  add_names(lines, "modules did not change", same);
  add_names(lines, "tensors only in A", report.only_a);
  add_names(lines, "tensors only in B", report.only_b);
  add_names(lines, "tensors of other shapes", report.shapes);
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
