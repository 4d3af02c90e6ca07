// A run folder as left by a kill, made from that of a complete run.
#pragma once
#include <filesystem>
#include <string>

namespace lft::test {

/// The state after a kill at `step`: later checkpoints and the final files are missing, the metrics
/// may have more lines than the checkpoint.
inline void copy_killed(const std::string& from, const std::string& to, int64_t step) {
  namespace fs = std::filesystem;
  fs::copy(from, to, fs::copy_options::recursive);
  fs::remove_all(to + "/adapter");
  fs::remove(to + "/report.html");
  for (int64_t later = step + 1; later <= 100; ++later)
    fs::remove_all(to + "/checkpoints/step-" + std::to_string(later));
}

}  // namespace lft::test
