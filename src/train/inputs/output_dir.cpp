#include "src/train/inputs/output_dir.h"

#include <unistd.h>

#include <filesystem>

#include "src/base/errors.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/run_lock.h"
#include "src/io/files.h"

namespace lft::train {
namespace {

/// Describes the run in a used output directory as far as possible. kUsage with its process id if
/// it is still running.
std::string describe_run(const std::string& dir, const std::string& product) {
  checkpoint::refuse_locked(dir);
  const std::vector<checkpoint::CheckpointStatus> checkpoints =
      checkpoint::list_checkpoints(dir + "/checkpoints", /*verify=*/false);
  if (checkpoints.empty()) return product + " is there, no checkpoint";
  return "run " + checkpoints.front().run_id + ", step " + std::to_string(checkpoints.front().step);
}

/// The first existing file or folder of a run.
const char* first_product(const std::string& dir) {
  for (const char* product : {"metrics.jsonl", "recipe.resolved.yaml", "checkpoints", "adapter",
                              "parts", "model", "best"})
    if (io::path_exists(dir + "/" + product)) return product;
  return nullptr;
}

/// The bytes of the run's own files that a resumed run replaces.
uint64_t replaced_bytes(const std::string& dir) {
  namespace fs = std::filesystem;
  uint64_t bytes = 0;
  for (const char* part : {"checkpoints", "best"}) {
    std::error_code ignored;  // of a file that is being deleted
    for (fs::recursive_directory_iterator each(dir + "/" + part, ignored), end; each != end;
         each.increment(ignored)) {
      const uintmax_t size = each->is_regular_file(ignored) ? each->file_size(ignored) : 0;
      if (!ignored) bytes += size;
    }
  }
  return bytes;
}

}  // namespace

bool contains_run(const recipe::Recipe& recipe) {
  return first_product(recipe.output_dir) != nullptr;
}

void check_output_dir(const recipe::Recipe& recipe, bool resume) {
  const std::string& dir = recipe.output_dir;
  const auto fail = [&](ErrorKind kind, const std::string& what, const std::string& next,
                        const std::string& found = "") {
    refuse(kind, what, dir, found, {}, next);
  };
  for (const std::string& input : {recipe.model.path, recipe.lora.init_from}) {
    if (!input.empty() && io::is_inside(dir, input))
      fail(ErrorKind::kUsage, "output_dir is inside the input " + input,
           "choose another output_dir");
  }
  for (const recipe::Source& source : recipe.data.train.sources()) {
    if (io::is_directory(source.path) && io::is_inside(dir, source.path))
      fail(ErrorKind::kUsage, "output_dir is inside the data", "choose another output_dir");
  }
  if (io::path_exists(dir) && !io::is_directory(dir))
    fail(ErrorKind::kResource, "output_dir is a file", "choose another output_dir");
  if (const char* product = resume ? nullptr : first_product(dir); product != nullptr)
    fail(ErrorKind::kUsage, "output_dir contains a run",
         "resume it with --resume, or choose another output_dir", describe_run(dir, product));
  std::filesystem::path existing = io::absolute_path(dir);
  while (!io::path_exists(existing.string()) && existing.has_parent_path() &&
         existing != existing.parent_path())
    existing = existing.parent_path();
  const bool folder = io::is_directory(existing.string());
  if (folder && access(existing.c_str(), W_OK | X_OK) == 0) return;
  const std::string what = !folder ? "output_dir cannot be written: a file is in its way, "
                           : errno == EROFS
                               ? "output_dir cannot be written: this is a read-only file system: "
                               : "output_dir cannot be written: no permission to create files in ";
  fail(ErrorKind::kResource, what + existing.string(), "choose another output_dir");
}

void check_disk_space(const recipe::Recipe& recipe, int64_t trainable_parameters) {
  constexpr uint64_t kBesides = 4u << 20;  // metrics, TensorBoard, report, manifests
  const uint64_t weights = static_cast<uint64_t>(trainable_parameters) * sizeof(float);
  const uint64_t saved =
      static_cast<uint64_t>(recipe.checkpoint.keep) + 1 + (recipe.checkpoint.at_step_zero ? 1 : 0) +
      (recipe.train.keep_best == recipe::KeepBest::kNone  // each may be another best step
           ? 0
           : static_cast<uint64_t>(recipe.checkpoint.keep) + 1);
  const uint64_t needed = weights * 3 * saved + weights + kBesides;  // with both moments
  const uint64_t available = io::free_bytes(recipe.output_dir),
                 replaced = replaced_bytes(recipe.output_dir);
  if (available + replaced >= needed) return;
  refuse(ErrorKind::kResource, "the disk is too small for this run's checkpoints",
         recipe.output_dir,
         format_bytes(static_cast<double>(available)) + " free" +
             (replaced == 0 ? ""
                            : ", and " + format_bytes(static_cast<double>(replaced)) +
                                  " in the checkpoints that are replaced"),
         format_bytes(static_cast<double>(needed)) + " (" + std::to_string(saved) +
             " of them, and the adapter)",
         "free space, choose another output_dir, or lower checkpoint.keep or lora.rank");
}

}  // namespace lft::train
