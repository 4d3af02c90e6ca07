// The runs of a sweep, one after the other, each in a separate process and folder. A sweep that is
// started again skips the runs that are done and resumes the others.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/runs/grid.h"

namespace lft::runs {

struct SweepOptions {
  std::string recipe;             // as on a command line
  std::vector<std::string> sets;  // for all runs
  std::vector<Axis> axes;
  std::string out;     // empty: <output_dir>-sweep
  bool halve = false;  // stop the worse half after a third of the steps
};

/// Runs `lft` with these arguments and returns its exit code.
using RunLft = std::function<int(const std::vector<std::string>& arguments)>;

/// All recipes are read before the first run starts. Prints a line for each run, and the table at
/// the end. Returns 0, or 130 or 75 if a signal stopped it; throws an error of the first failed
/// run's kind if a run failed. kUsage if a run in the folder has other settings or is running.
///
/// Halving: every run stops at halving_step(). The runs are compared by their best evaluation so
/// far, by train.keep_best's metric or else by the loss; the better half, rounded up, continues.
int sweep(const SweepOptions& options, const RunLft& run);

}  // namespace lft::runs
