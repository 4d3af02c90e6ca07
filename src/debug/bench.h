// Optimizer steps without an output directory: of a run that can be taken back to its start. Shared by overfit and bare.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/train/run.h"

namespace lft {

/// A test's ways in, as TrainOptions has them: when a model is built, and before a step's gradients are checked.
struct BenchHooks {
  std::function<void(Run&)> built = {};
  std::function<void(int64_t step, AdamW&)> gradients_ready = {};
};

struct BenchSteps {
  std::vector<StepOutcome> outcomes;  // in order; only those that took place
  std::string stopped;                // why before the last one; empty: all of them took place
  int64_t taken() const;              // that moved the weights
};

/// `run` must live as long as this.
class Bench {
 public:
  /// Keeps a copy of the trainables.
  explicit Bench(Run& run);

  /// Weights, moments, loss scale, step state and learning rates as they were when this was made.
  void reset();
  /// Up to `count` steps, each on what `batch` gives. A non-finite step, an error that says a step could not train, and a signal end them.
  /// `each` sees a step when it is done.
  BenchSteps take(int64_t count, const StepOptions& options, const std::function<StepSamples()>& batch,
                  const std::function<void(const StepOutcome&)>& each = {});

  const std::vector<at::Tensor>& start() const { return start_; }  // by slot
  /// L2 distance of a slot's tensor from its start.
  double moved(size_t slot) const;

 private:
  Run& run_;
  std::vector<at::Tensor> start_;
  std::vector<double> lr_;  // by group
  LossScaler scaler_;
  StepState state_;
};

/// How the recipe of `run` takes a step.
StepOptions step_options(const Run& run, const BenchHooks& hooks);

/// Slots by what is trained: an adapter's A and B together, else a module's tensors.
struct BenchModule {
  std::string name;
  std::vector<size_t> slots;
  bool adapter = false;
};
std::vector<BenchModule> bench_modules(const AdamW& optimizer);

/// Mean over the supervised tokens, in evaluation mode and the run's precision, in micro-batches as
/// the recipe cuts them.
double bench_loss(Run& run, const std::vector<Sample>& samples);

}  // namespace lft
