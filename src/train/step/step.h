// One optimizer step over one global batch: a transaction. The only place that zeroes, runs,
// differentiates, unscales, checks, clips, steps, moves the loss scale and schedules.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "models/objective/forward_loss.h"
#include "src/data/loader.h"
#include "src/train/optim/loss_scaler.h"
#include "src/train/optim/optimizer.h"
#include "src/train/optim/schedule.h"
#include "src/train/step/global_batch.h"

namespace lft::train {

/// What changes from step to step in addition to weights, moments and the loss scale. Plain data;
/// a checkpoint contains all of it.
struct StepState {
  int64_t step = 0;          // global batches consumed, skipped ones counted: the next is step + 1
  int64_t scheduled = 0;     // what the schedule counts: updates and the recovery
  int64_t skips_in_row = 0;  // FP16 steps skipped since the last update
  bool recovered = false;    // the one FP32 recovery is used up
  double lr_factor = 1;      // what the recovery multiplied the base learning rates by
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
  /// Forward and backward pass; gradients are added up as autograd does. Returns the loss,
  /// detached, as forward_loss() computes it; the context has a dropout position. The backward pass
  /// starts from `scale` times that.
  virtual at::Tensor run(family::Batch batch, const objective::ForwardContext& context,
                         double scale) = 0;
};

struct StepOptions {
  const objective::Objective* objective = &objective::supervised_nll();
  PassRunner* passes = nullptr;      // runs them, where it is; not after a recovery, and only where
                                     // the objective sums tokens
  int64_t sources = 1;               // of several the losses are told apart
  double clip_grad_norm = 1;         // 0: off
  uint64_t seed = 42;                // of the dropout masks
  bool offload_activations = false;  // inputs of recomputed blocks wait in host memory
  std::function<void(int64_t step, Optimizer&)> gradients_ready =
      {};  // before the check, of this process's micro-batches; a hook for tests
  dist::Ranks* ranks = &dist::alone();  // the processes that share the step
  /// The update is launched and the host has not yet waited for what the step found: what it does
  /// here the device does not wait for. Throws nothing.
  std::function<void()> while_device_works = {};
};

enum class StepResult {
  kTaken,     // parameters, moments and schedule moved
  kEmpty,     // no supervised token, or none of its tokens can reach what is trained: only the step
              // number moved
  kOverflow,  // FP16 gradients overflowed: only the step number and the loss scale moved
  kNonFinite,  // nothing moved, the step number neither: what happens now is the recovery's
               // business
};

struct SourceLoss {
  int64_t source = 0, supervised = 0;
  double loss = 0;
};

struct StepOutcome {
  StepResult result = StepResult::kTaken;
  std::string reason;  // where it was not taken
  double loss = 0, lr = 0, lr_factor = 0,
         loss_scale = 1;  // lr: base group's; lr_factor: the schedule's
  ops::GradStats stats;   // norms by slot of the optimizer
  int64_t supervised = 0, tokens = 0;
  /// Of several sources: the mean over the supervised tokens of each that has any in this step.
  std::vector<SourceLoss> sources = {};
};

constexpr int64_t kMostSkipsInRow =
    50;  // FP16: after as many, and below a loss scale of 1, skipping is given up

/// Loss: the objective's terms of the whole global batch / its normaliser; the scale is fixed
/// within it. Gradients are absent at the end, whatever came out, but stay bound to the optimizer's
/// buffer. Micro-batches are added in the order of src/base/sum_tree.h. Of several processes each
/// runs its own, and all come to the same end: `whole` is of them all, and so are the outcome and
/// what moves. Memory that one lacks is OutOfMemoryElsewhere in the others.
StepOutcome train_step(const TrainState& train_state, const StepOptions& options,
                       const data::StepSamples& samples, const GlobalBatch& whole,
                       StepState& state);
/// The same in one process.
StepOutcome train_step(const TrainState& train_state, const StepOptions& options,
                       const data::StepSamples& samples, StepState& state);

/// The context of the passes of the step that follows `state`; micro-batch and normaliser are the
/// caller's.
objective::ForwardContext step_context(const StepOptions& options, const StepState& state);

std::vector<std::string> sample_ids(const data::StepSamples& samples);

}  // namespace lft::train
