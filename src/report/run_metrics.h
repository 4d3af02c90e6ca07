// The state of a run as its metrics.jsonl records it: the last step, the evaluations, the
// incidents, and how it ended. Damaged lines are skipped.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lft::report {

struct RunEval {
  int64_t step = 0;
  double loss = NAN;
  std::vector<std::pair<std::string, double>> figures = {};  // of a metric, by name
  /// The loss for "eval_loss", or the figure of that name; NaN without one.
  double value(const std::string& name) const;
};

struct RunIncident {
  int64_t step = 0;
  std::string event, what;
};

struct RunMetrics {
  int64_t step = 0, total_steps = 0;             // total_steps 0: not recorded
  std::string folder = {};                       // the working directory of the newest process
  double seconds = 0;                            // of all steps, evaluations and checkpoints
  double loss = NAN, lr = NAN, grad_norm = NAN;  // of the last step
  double step_s = NAN, tokens_per_s = NAN;       // means over the last steps
  std::vector<RunEval> evals = {};               // by rising steps
  std::vector<RunIncident> incidents = {};
  bool done = false;
  int64_t saved_step = -1;  // the step of the final weights, of a run that is done
  std::string failed = {};  // the error that ended the run; empty: none is recorded
};

/// A missing file is a run without steps.
RunMetrics read_run_metrics(const std::string& path);

}  // namespace lft::report
