#include <sys/stat.h>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/saved_state.h"
#include "src/checkpoint/steps.h"
#include "src/checkpoint/tensor_file.h"
#include "src/io/files.h"

namespace lft::checkpoint {
namespace {

/// "what: found ..., expected ... (file)", for a list.
std::string one_line(const Error& error) {
  const ErrorInfo& info = error.info();
  std::string line = info.what;
  if (!info.found.empty()) line += ": found " + info.found;
  if (!info.expected.empty()) line += ", expected " + info.expected;
  return line + " (" + info.where.substr(info.where.rfind('/') + 1) + ")";
}

/// Sets the sizes of its files, and the time of MANIFEST.
void measure(CheckpointStatus& status) {
  for (const char* name : {kTrainables, kOptimizer, kState, kRecipe, kManifest}) {
    struct stat file {};
    if (stat((status.path + "/" + name).c_str(), &file) != 0) continue;
    status.bytes += static_cast<uint64_t>(file.st_size);
    if (name == kManifest) status.saved_at = file.st_mtime;
  }
}

CheckpointStatus status_of(const std::string& path, bool verify) {
  CheckpointStatus status;
  status.path = path;
  measure(status);
  try {
    const Manifest manifest = read_manifest(path);
    status.step = manifest.step;
    status.run_id = manifest.run_id;
    status.identity = manifest.identity;
    if (verify) verify_step(path);
  } catch (const Error& error) {
    status.fault = one_line(error);
  }
  return status;
}

}  // namespace

std::vector<CheckpointStatus> list_checkpoints(const std::string& dir, bool verify) {
  std::vector<CheckpointStatus> list;
  bool vanished = false;
  do {  // a running job may replace the only step while it is read
    vanished = false;
    for (const StepDir& step : find_steps(rooted_dir(dir)).steps) {
      CheckpointStatus status = status_of(step.path, verify);
      status.step = step.step;
      const bool gone = !status.fault.empty() && !entry_exists(step.path);
      if (!gone) list.push_back(std::move(status));
      vanished = vanished || gone;
    }
  } while (vanished && list.empty());
  return list;
}

CheckpointStatus inspect_checkpoint(const std::string& path) {
  return status_of(rooted_dir(path), /*verify=*/true);
}

Checkpoint load_checkpoint(const std::string& path) {
  const std::string root = rooted_dir(path);
  Manifest manifest = verify_step(root);
  Checkpoint checkpoint;
  checkpoint.step = manifest.step;
  checkpoint.run_id = std::move(manifest.run_id);
  checkpoint.identity = std::move(manifest.identity);
  checkpoint.environment = std::move(manifest.environment);
  try {
    checkpoint.trainables = read_tensor_file(root + "/" + kTrainables);
    checkpoint.moments = read_tensor_file(root + "/" + kOptimizer);
    checkpoint.state = io::read_json_file(root + "/" + kState);
    check_saved_state(checkpoint.state, checkpoint.step, root + "/" + kState);
    checkpoint.recipe = io::read_file(root + "/" + kRecipe);
  } catch (const Error& error) {
    throw Error(ErrorKind::kCheckpoint, error.info());
  }
  return checkpoint;
}

std::optional<Checkpoint> load_newest(const std::string& dir, std::vector<std::string>* warnings) {
  const std::string root = rooted_dir(dir);
  const StepDirs found = find_steps(root);
  std::vector<std::string> reasons;
  for (const StepDir& step : found.steps) {
    try {
      Checkpoint checkpoint = load_checkpoint(step.path);
      for (const std::string& reason : reasons) warnings->push_back("not used: " + reason);
      return checkpoint;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kCheckpoint) throw;
      reasons.push_back(step.path + ": " + one_line(error));
    }
  }
  for (const std::string& path : found.others) reasons.push_back(path + ": the name is no step's");
  if (reasons.empty()) return std::nullopt;
  refuse(ErrorKind::kCheckpoint, "no checkpoint can be used", root, join(reasons, "\n"),
         "one that verifies", "restore one from a copy, or start over in another output_dir");
}

}  // namespace lft::checkpoint
