// Optimizer steps without an output directory: of a run that can be taken back to its start. Shared
// by overfit and bare.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/base/log.h"
#include "src/train/run/run.h"

namespace lft::debug {

/// A test's ways in, as TrainOptions has them: when a model is built, and before a step's gradients
/// are checked.
struct TrialHooks {
  std::function<void(train::Run&)> built = {};
  std::function<void(int64_t step, train::Optimizer&)> gradients_ready = {};
};

struct TrialSteps {
  std::vector<train::StepOutcome> outcomes;  // in order; only those that took place
  std::string stopped;    // why before the last one; empty: all of them took place
  int64_t taken() const;  // that moved the weights
};

/// `run` must live as long as this.
class TrialRun {
 public:
  /// Keeps a copy of the trainables.
  explicit TrialRun(train::Run& run);

  /// Weights, moments, loss scale, step state and learning rates as they were when this was made.
  void reset();
  /// Up to `count` steps, each on what `batch` gives. A non-finite step, an error that says a step
  /// could not train, and a signal end them. `each` sees a step when it is done.
  TrialSteps take(int64_t count, const train::StepOptions& options,
                  const std::function<data::StepSamples()>& batch,
                  const std::function<void(const train::StepOutcome&)>& each = {});

  const std::vector<at::Tensor>& start() const { return start_; }  // by slot
  /// L2 distance of a slot's tensor from its start.
  double moved(size_t slot) const;

 private:
  train::Run& run_;
  std::vector<at::Tensor> start_;
  std::vector<double> lr_;  // by group
  train::LossScaler scaler_;
  train::StepState state_;
};

/// How the recipe of `run` takes a step.
train::StepOptions step_options(const train::Run& run, const TrialHooks& hooks);

/// Mean over the supervised tokens, in evaluation mode and the run's precision, in micro-batches as
/// the recipe cuts them.
double trial_loss(train::Run& run, const std::vector<data::Sample>& samples);

}  // namespace lft::debug
