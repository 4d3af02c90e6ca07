// The one-time FP32 recovery: the changes when mixed precision is abandoned in the middle of a run.
// Parameters and moments are unchanged.
#pragma once
#include "src/recipe/choices.h"
#include "src/train/optim/loss_scaler.h"
#include "src/train/optim/optimizer.h"
#include "src/train/step/step.h"

namespace lft::train {

/// Whether a recovery is possible after a non-finite step: below FP32, not yet used, and the
/// recipe's `recovery` is fp32.
bool can_recover(const StepState& state, recipe::Choice<recipe::RecoveryRule> recovery);

/// From the next step on: compute in FP32 (TF32 off), no loss scaling, base learning rates times
/// `lr_backoff` (under the schedule, which continues). The failed step counts as done, its batch is
/// not repeated.
void recover(StepState& state, Optimizer& optimizer, LossScaler& scaler, double lr_backoff);

/// For a recovered step that ran out of memory, since FP32 activations
/// are larger: recompute every block, then halve the parts of a
/// micro-batch. Returns false if no reduction remains. Applies to the
/// rest of the run. `rows`: of the step's largest micro-batch.
bool reduce_memory_use(StepState& state, int64_t rows);

/// The same settings in a run that continues after its recovery.
void apply_recovered(const StepState& state, Optimizer& optimizer, LossScaler& scaler);

}  // namespace lft::train
