// The folder of a run as a kill leaves it, made of that of a whole one.
#pragma once
#include <filesystem>
#include <string>

namespace lft::test {

/// What a kill after `step` leaves: later checkpoints and the products are not there, the metrics
/// may hold more than the checkpoint knows.
inline void copy_killed(const std::string& from, const std::string& to, int64_t step) {
  namespace fs = std::filesystem;
  fs::copy(from, to, fs::copy_options::recursive);
  fs::remove_all(to + "/adapter");
  fs::remove(to + "/report.html");
  for (int64_t later = step + 1; later <= 100; ++later)
    fs::remove_all(to + "/checkpoints/step-" + std::to_string(later));
}

}  // namespace lft::test
