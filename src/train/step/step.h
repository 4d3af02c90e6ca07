// One optimizer step over one global batch, as a transaction: the only place that zeroes, runs,
// differentiates, unscales, checks, clips, steps, adjusts the loss scale and schedules.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/family/family.h"
#include "models/objective/forward_loss.h"
#include "src/data/loader.h"
#include "src/train/optim/loss_scaler.h"
#include "src/train/optim/optimizer.h"
#include "src/train/optim/schedule.h"
#include "src/train/step/global_batch.h"

namespace lft::train {

/// The state that changes from step to step besides weights, moments and the loss scale. Plain
/// data; a checkpoint contains all of it.
struct StepState {
  int64_t step = 0;          // global batches consumed, also skipped ones: the next is step + 1
  int64_t scheduled = 0;     // the schedule's counter: updates and the recovery
  int64_t skips_in_row = 0;  // FP16 steps skipped since the last update
  bool recovered = false;    // the single FP32 recovery has been used
  double lr_factor = 1;      // the recovery's factor on the base learning rates
  int64_t recompute = 0;     // activation checkpointing: every Nth block, 0: none
  int64_t split = 1;         // parts of a micro-batch that are run one by one
  at::ScalarType compute = at::kFloat;
};

/// A model and everything that an optimizer step changes or reads.
struct TrainState {
  family::Model& model;
  Optimizer& optimizer;
  LossScaler& scaler;
  const Schedule& schedule;
};

/// Runs the passes of micro-batches instead of autograd.
class PassRunner {
 public:
  virtual ~PassRunner() = default;
  /// Forward and backward pass; gradients are accumulated as in autograd. Returns the detached loss
  /// of forward_loss(); the context has a dropout position. The backward pass starts from `scale`
  /// times the loss.
  virtual at::Tensor run(family::Batch batch, const objective::ForwardContext& context,
                         double scale) = 0;
};

struct StepOptions {
  const objective::Objective* objective = &objective::supervised_nll();
  /// Values of the trainables under the reference, by slot, for an objective that uses the KL
  /// divergence.
  std::vector<at::Tensor> initial = {};
  PassRunner* passes = nullptr;      // runs the passes, if set; not after a recovery, and only if
                                     // the objective sums tokens
  int64_t sources = 1;               // if several, losses are reported by source
  double balance = 0;                // weight of the routers' load balancing loss (routing.h): its
                                     // mean over the passes of the global batch; 0: none
  double clip_grad_norm = 1;         // 0: off
  uint64_t seed = 42;                // of the dropout masks
  bool offload_activations = false;  // inputs of recomputed blocks are offloaded to host memory
  std::function<void(int64_t step, Optimizer&)> gradients_ready =
      {};  // before the check, on this process's micro-batches; a hook for tests
  dist::Ranks* ranks = &dist::alone();  // the processes that share the step
  /// Called after the update is launched and before the host waits for the step's result, in
  /// parallel with the device. Does not throw.
  std::function<void()> while_device_works = {};
};

enum class StepResult {
  kTaken,      // parameters, moments and schedule were updated
  kEmpty,      // no supervised token, or none of its tokens affects a trainable: only the step
               // number changed
  kOverflow,   // FP16 gradients overflowed: only the step number and the loss scale changed
  kNonFinite,  // nothing changed, not even the step number: the recovery decides what
               // happens
};

struct SourceLoss {
  int64_t source = 0, supervised = 0;
  double loss = 0;
};

struct StepOutcome {
  StepResult result = StepResult::kTaken;
  std::string reason;  // if it was not taken
  double loss = 0, lr = 0, lr_factor = 0,
         loss_scale = 1;  // lr: base group's; lr_factor: the schedule's
  ops::GradStats stats;   // norms by slot of the optimizer
  int64_t supervised = 0, tokens = 0;
  /// For several sources: the mean over the supervised tokens of each source in this step.
  std::vector<SourceLoss> sources = {};
  /// Objective::means(), then those of experts (expert_figures.h) and `balance_loss`, the mean of
  /// StepOptions::balance without the weight.
  objective::Figures figures = {};
  double kl = 0;  // if the objective uses it
};

constexpr int64_t kMostSkipsInRow =
    50;  // FP16: the limit of consecutive skips below a loss scale of 1

/// Loss: the objective's terms of the whole global batch / its normaliser; the scale is constant
/// within it. Gradients are absent afterwards for any outcome, but stay bound to the optimizer's
/// buffer. Micro-batches are added in the order of src/base/sum_tree.h. Each of several processes
/// runs its own, with the same result: `whole`, the outcome and the changes are common. An
/// out-of-memory error in one is OutOfMemoryElsewhere in the others.
StepOutcome train_step(const TrainState& train_state, const StepOptions& options,
                       const data::StepSamples& samples, const GlobalBatch& whole,
                       StepState& state);
/// The same in one process.
StepOutcome train_step(const TrainState& train_state, const StepOptions& options,
                       const data::StepSamples& samples, StepState& state);

/// The context of the passes of the step after `state`; micro-batch and normaliser are set by the
/// caller.
objective::ForwardContext step_context(const StepOptions& options, const StepState& state);

std::vector<std::string> sample_ids(const data::StepSamples& samples);

}  // namespace lft::train
