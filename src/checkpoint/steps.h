// The directories of a run's checkpoints: their names, and which are there. For this folder.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lft::checkpoint {

/// "step-7" is step 7. "step-7~" is too: the one that gives way while its successor is committed,
/// good until then.
std::string step_name(int64_t step);
std::optional<int64_t> step_of(const std::string& name);

struct StepDir {
  int64_t step = 0;
  std::string path;
  bool displaced = false;  // the name ends with ~
};
struct StepDirs {
  std::vector<StepDir> steps;          // newest first, a displaced one after its successor
  std::vector<std::string> others;     // paths that begin with "step-" and are no step
  std::vector<std::string> leftovers;  // .tmp-* and .dead-* of runs that were killed; never trusted
};
/// Nothing where `dir` is not there. kCheckpoint where it cannot be read.
StepDirs find_steps(const std::string& dir);

/// Whether the name is taken, by whatever, also by a symlink that points nowhere.
bool entry_exists(const std::string& path);
/// `dir` from the root on, without a trailing slash.
std::string rooted_dir(const std::string& dir);

}  // namespace lft::checkpoint
