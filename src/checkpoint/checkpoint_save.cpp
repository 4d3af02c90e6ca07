#include <functional>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/steps.h"
#include "src/checkpoint/tensor_file.h"
#include "src/io/file_handle.h"
#include "src/io/files.h"

namespace lft::checkpoint {
namespace {

/// The result of `read` (read_manifest, verify_step), or nothing if it throws.
std::optional<Manifest> manifest_of(const std::string& step_path,
                                    Manifest (*read)(const std::string&)) {
  try {
    return read(step_path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool verifies(const std::string& step_path) {
  return manifest_of(step_path, verify_step).has_value();
}

/// Steps that this build cannot read are not deleted.
bool is_newer_format(const std::string& step_path) {
  const std::optional<Manifest> manifest = manifest_of(step_path, read_manifest);
  return manifest && manifest->version > kManifestVersion;
}

/// Clean-up while another error is being handled: its own failure must not hide that error.
void quietly(const std::string& path, const std::function<void()>& clean) {
  try {
    clean();
  } catch (const Error&) {
    warning("left behind: " + path);
  }
}

void check_arguments(const Checkpoint& checkpoint, int64_t keep) {
  if (checkpoint.step < 0 || keep < 1) {
    throw Error(ErrorKind::kInternal, "save_checkpoint: step " + std::to_string(checkpoint.step) +
                                          ", keep " + std::to_string(keep) + " (least 0 and 1)");
  }
  refuse_non_finite_tensors(checkpoint.trainables);
  refuse_non_finite_tensors(checkpoint.moments);
}

/// A second guard in addition to the lock, which a network file system may not honour.
void refuse_other_runs(const StepDirs& found, const std::string& run_id) {
  for (const StepDir& step : found.steps) {
    const std::optional<Manifest> manifest = manifest_of(step.path, read_manifest);
    if (!manifest || manifest->version > kManifestVersion || manifest->run_id == run_id) continue;
    refuse(ErrorKind::kUsage, "another run saves its checkpoints here", step.path,
           "run " + manifest->run_id, "run " + run_id, "give each run a separate output_dir");
  }
}

ManifestFile write_text(const std::string& dir, const std::string& name, const std::string& text) {
  io::FileHandle file = io::FileHandle::create(dir + "/" + name, text.size());
  file.write(text.data(), text.size());
  file.sync();
  file.close();
  return {name, text.size(), sha256(text)};
}

ManifestFile write_tensors(const std::string& dir, const std::string& name,
                           const TensorMap& tensors) {
  const std::string path = dir + "/" + name;
  const std::string hash = write_tensor_file(path, tensors);
  return {name, io::FileHandle::open_to_read(path).size(), hash};
}

/// Flushes every file and the directory to disk, MANIFEST last.
Manifest write_step(const std::string& dir, const Checkpoint& checkpoint) {
  const std::string state = exact_json_text(checkpoint.state, kState);
  io::make_dirs(dir);
  Manifest manifest{.run_id = checkpoint.run_id,
                    .step = checkpoint.step,
                    .identity = checkpoint.identity,
                    .environment = checkpoint.environment};
  manifest.files.push_back(write_tensors(dir, kTrainables, checkpoint.trainables));
  manifest.files.push_back(write_tensors(dir, kOptimizer, checkpoint.moments));
  manifest.files.push_back(write_text(dir, kState, state));
  manifest.files.push_back(write_text(dir, kRecipe, checkpoint.recipe));
  write_text(dir, kManifest, manifest_text(manifest));
  io::sync_dir(dir);
  return manifest;
}

/// Renames the directory first, then deletes it: a crash in between leaves a name that is never
/// trusted.
void retire(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string dead = path.substr(0, slash) + "/.dead-" + path.substr(slash + 1);
  io::rename_synced(path, dead);
  io::remove_tree(dead);
}

/// Frees the name `path` for its successor. A step that verifies remains valid under the name with
/// a ~.
void displace(const std::string& path) {
  const std::string aside = path + "~";
  if (!verifies(path)) return retire(path);
  if (entry_exists(aside)) retire(aside);
  io::rename_synced(path, aside);
}

bool holds_the_same(const std::string& path, const Manifest& fresh) {
  const std::optional<Manifest> held = manifest_of(path, verify_step);
  return held && held->files == fresh.files && held->identity == fresh.identity &&
         held->environment == fresh.environment;
}

/// Renames a complete temporary directory to a step that is trusted on load.
void commit(const std::string& temporary, const std::string& path, const Manifest& fresh) {
  if (holds_the_same(path, fresh)) return io::remove_tree(temporary);
  if (entry_exists(path)) displace(path);
  io::rename_synced(temporary, path);
  try {
    verify_step(path);
  } catch (const Error& error) {
    quietly(path, [&] { retire(path); });
    ErrorInfo info = error.info();
    info.what = "the disk did not keep what was written";
    info.next = "check the disk; the earlier checkpoints are kept";
    throw Error(ErrorKind::kResource, info);
  }
}

/// The steps to delete, broken ones first. The step just saved was verified; every other one is
/// read before it counts. Step 0, the start of the run, is kept besides the newest.
std::vector<std::string> superseded(const std::string& dir, int64_t saved, int64_t keep) {
  std::vector<std::string> broken, old;
  int64_t kept = 0, last_kept = -1;
  for (const StepDir& step : find_steps(dir).steps) {
    if (is_newer_format(step.path)) continue;
    const bool just_saved = step.step == saved && !step.displaced;
    const bool surplus = step.step > 0 && step.step < saved && kept >= keep;
    if (!just_saved && (step.step == last_kept || surplus)) {
      old.push_back(step.path);
    } else if (just_saved || verifies(step.path)) {
      kept += step.step > 0;
      last_kept = step.step;
    } else {
      broken.push_back(step.path);
    }
  }
  broken.insert(broken.end(), old.begin(), old.end());
  return broken;
}

}  // namespace

void save_checkpoint(const std::string& dir, const Checkpoint& checkpoint, int64_t keep) {
  check_arguments(checkpoint, keep);
  const std::string root = rooted_dir(dir);
  io::make_dirs(root);
  const StepDirs found = find_steps(root);
  refuse_other_runs(found, checkpoint.run_id);
  for (const std::string& leftover : found.leftovers) io::remove_tree(leftover);
  const std::string path = root + "/" + step_name(checkpoint.step),
                    temporary = root + "/.tmp-" + std::to_string(checkpoint.step);
  try {
    commit(temporary, path, write_step(temporary, checkpoint));
  } catch (...) {
    quietly(temporary, [&] { io::remove_tree(temporary); });
    throw;
  }
  for (const std::string& gone : superseded(root, checkpoint.step, keep)) retire(gone);
}

void retire_steps(const std::string& dir, const std::set<int64_t>& kept) {
  for (const StepDir& step : find_steps(rooted_dir(dir)).steps) {
    if (!kept.contains(step.step) && !is_newer_format(step.path)) retire(step.path);
  }
}

}  // namespace lft::checkpoint
