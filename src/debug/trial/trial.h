// Optimizer steps without an output directory, for a run that can be reset to its start. Used by
// overfit and bare.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/base/log.h"
#include "src/train/run/run.h"

namespace lft::debug {

/// For tests, as in TrainOptions: called when a model is built, and before a step's gradients are
/// checked.
struct TrialHooks {
  std::function<void(train::Run&)> built = {};
  std::function<void(int64_t step, train::Optimizer&)> gradients_ready = {};
};

struct TrialSteps {
  std::vector<train::StepOutcome> outcomes;  // in order; only executed steps
  std::string stopped;                       // why it ended early; empty: all steps were executed
  int64_t taken() const;                     // that changed the weights
};

/// `run` must outlive it.
class TrialRun {
 public:
  /// Keeps a copy of the trainables.
  explicit TrialRun(train::Run& run);

  /// Resets weights, moments, loss scale, step state and learning rates to the initial state.
  void reset();
  /// Runs up to `count` steps on the batches of `batch`. A step that is not finite, an error of
  /// training, or a signal ends them. `each` receives each finished step.
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

/// The step options of the recipe of `run`.
train::StepOptions step_options(const train::Run& run, const TrialHooks& hooks);

/// The mean loss over the supervised tokens, in evaluation mode and the run's precision, in the
/// recipe's micro-batches.
double trial_loss(train::Run& run, const std::vector<data::Sample>& samples);

}  // namespace lft::debug
