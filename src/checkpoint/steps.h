// Names and listing of a run's checkpoint directories. For this folder.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lft::checkpoint {

/// "step-7" is step 7. "step-7~" is, too: it is replaced while its successor is committed, and
/// valid until then.
std::string step_name(int64_t step);
std::optional<int64_t> step_of(const std::string& name);

struct StepDir {
  int64_t step = 0;
  std::string path;
  bool displaced = false;  // the name ends with ~
};
struct StepDirs {
  std::vector<StepDir> steps;          // newest first, a displaced one after its successor
  std::vector<std::string> others;     // paths that begin with "step-" but are not steps
  std::vector<std::string> leftovers;  // .tmp-* and .dead-* of runs that were killed; never trusted
};
/// Empty if `dir` does not exist. kCheckpoint if it cannot be read.
StepDirs find_steps(const std::string& dir);

/// Whether an entry of any kind has the name, including a dangling symlink.
bool entry_exists(const std::string& path);
/// The absolute path of `dir`, without a trailing slash.
std::string rooted_dir(const std::string& dir);

}  // namespace lft::checkpoint
