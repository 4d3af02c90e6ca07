#include "src/debug/inspect/weights_source.h"

#include <filesystem>

#include "kernels/common/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/hf/adapter.h"
#include "src/hf/adapter_files.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights.h"
#include "src/io/files.h"

namespace lft::debug {
namespace {

namespace fs = std::filesystem;
constexpr char kTrainables[] = "/trainables.safetensors";

WeightsSource open_adapter(const std::string& path) {
  const hf::AdapterDir dir = hf::AdapterDir::open(path);
  WeightsSource source{.path = path, .kind = "adapter", .files = {}, .tensors = {}};
  source.files.emplace_back(path + "/" + hf::kAdapterWeights);
  for (const auto& [name, stored] : dir.stored_names)
    source.tensors.emplace(name, WeightsSource::Place{0, stored});
  return source;
}

WeightsSource open_model(const std::string& path) {
  hf::ModelDir dir = hf::ModelDir::open(path);
  WeightsSource source{.path = path, .kind = "model", .files = std::move(dir.files), .tensors = {}};
  for (auto& [name, place] : dir.tensors)
    source.tensors.emplace(name, WeightsSource::Place{place.file, place.stored_name});
  return source;
}

WeightsSource open_trainables(const std::string& path, const std::string& kind) {
  WeightsSource source{.path = path, .kind = kind, .files = {}, .tensors = {}};
  source.files.emplace_back(path + kTrainables);
  for (const auto& [name, info] : source.files.front().tensors())
    source.tensors.emplace(name, WeightsSource::Place{0, name});
  return source;
}

/// The path of a step that verifies: `path` itself, or the newest below it; "" where there is none
/// at all.
std::string verified_step(const std::string& path, bool is_step) {
  const std::vector<checkpoint::CheckpointStatus> steps =
      is_step ? std::vector{checkpoint::inspect_checkpoint(path)}
              : checkpoint::list_checkpoints(path, /*verify=*/true);
  for (const checkpoint::CheckpointStatus& step : steps) {
    if (step.fault.empty()) return step.path;
  }
  if (steps.empty()) return "";
  throw Error(ErrorKind::kCheckpoint, {.what = "the checkpoint does not verify",
                                       .where = steps.front().path,
                                       .found = steps.front().fault,
                                       .expected = {},
                                       .next = "lft checkpoint ls shows which steps do"});
}

[[noreturn]] void no_source(const std::string& path, const std::string& found) {
  throw Error(ErrorKind::kInput, {.what = "no weights to compare",
                                  .where = path,
                                  .found = found,
                                  .expected = "an adapter directory, a checkpoint step, an "
                                              "incident, an output_dir or a model directory",
                                  .next = "lft checkpoint ls OUTPUT_DIR shows the steps of a run"});
}

}  // namespace

const io::TensorInfo& WeightsSource::info(const std::string& name) const {
  const Place& place = tensors.at(name);
  return files[place.file].info(place.stored_name);
}

at::Tensor WeightsSource::read(const std::string& name) const {
  return hf::read_tensor(files[tensors.at(name).file], info(name));
}

WeightsSource open_weights(const std::string& given) {
  if (!io::is_directory(given)) no_source(given, io::path_exists(given) ? "a file" : "nothing");
  const std::string path = io::absolute_path(given);
  if (io::path_exists(path + "/adapter_config.json")) return open_adapter(path);
  if (io::path_exists(path + "/MANIFEST") ||
      fs::path(path).filename().string().starts_with("step-")) {
    if (!io::path_exists(path + "/incident.json"))
      return open_trainables(verified_step(path, /*is_step=*/true), "checkpoint");
    return open_trainables(path, "incident");
  }
  if (io::path_exists(path + "/config.json")) return open_model(path);
  for (const char* product : {"/adapter", "/model"}) {
    if (io::is_directory(path + product)) return open_weights(path + product);
  }
  const std::string steps = io::is_directory(path + "/checkpoints") ? path + "/checkpoints" : path;
  if (const std::string step = verified_step(steps, /*is_step=*/false); !step.empty())
    return open_trainables(step, "checkpoint");
  no_source(path, "a folder with none of them");
}

}  // namespace lft::debug
