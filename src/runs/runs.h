// Runs on disk: what a run's folder contains, how far it is, and which of several is the best.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/recipe/recipe.h"
#include "src/report/run_metrics.h"

namespace lft::runs {

enum class State { kRunning, kDone, kFailed, kStopped };
/// "running", "done", "failed", "stopped".
const char* state_word(State state);

struct RunInfo {
  std::string path;
  std::optional<recipe::Recipe> recipe = {};  // nothing: it cannot be read
  report::RunMetrics metrics = {};
  State state = State::kStopped;
  std::string owner = {};    // of a running one: process, host and time
  std::string product = {};  // path of its adapter, parts or model; empty: none yet
};

/// Whether the folder is the output_dir of a run.
bool is_run(const std::string& path);
/// kUsage if the folder is no run.
RunInfo read_run(const std::string& path);
/// The run at `folder`, or all runs below it, by path. kUsage if there is no such folder.
std::vector<RunInfo> find_runs(const std::string& folder);

/// A run's resolved recipe with `sets`, for use from any folder: output_dir is `run`, and other
/// relative paths that are not in `sets` start at the folder in which the run was started.
recipe::Recipe read_run_recipe(const std::string& run, const std::vector<std::string>& sets);

/// The figure by which evaluations are compared.
struct Figure {
  std::string name = "eval_loss";
  bool higher = false;  // whether a higher value is better
  bool operator==(const Figure&) const = default;
};
/// That of train.keep_best; the loss without one.
Figure figure_of(const RunInfo& run);
/// The figure of all runs if they agree, otherwise the loss.
Figure common_figure(const std::vector<RunInfo>& runs);

struct BestEval {
  int64_t step = 0;
  double value = 0;
};
/// The run's best finite evaluation, of those up to step `last`; the earliest of equals.
std::optional<BestEval> best_eval(const RunInfo& run, const Figure& figure,
                                  int64_t last = INT64_MAX);
/// Whether a is better than b.
bool better(double a, double b, const Figure& figure);
/// The position of the best run; nothing if none has an evaluation.
std::optional<size_t> best_run(const std::vector<RunInfo>& runs, const Figure& figure);

/// For each run the fields in which the recipes differ, as key and value; without output_dir.
using Fields = std::vector<std::pair<std::string, std::string>>;
std::vector<Fields> differing_fields(const std::vector<RunInfo>& runs);

}  // namespace lft::runs
