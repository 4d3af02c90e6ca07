// The one-shot FP32 recovery: what changes when mixed precision is given up in the middle of a run.
// Parameters and moments are not touched.
#pragma once
#include "src/recipe/choices.h"
#include "src/train/optim/loss_scaler.h"
#include "src/train/optim/optimizer.h"
#include "src/train/step/step.h"

namespace lft::train {

/// Whether a non-finite step can still be answered with a recovery: below FP32, not used up, and
/// the recipe's `recovery` is fp32.
bool can_recover(const StepState& state, recipe::Choice<recipe::RecoveryRule> recovery);

/// From the next step on: compute in FP32 (TF32 off), no loss scaling, base learning rates times
/// `lr_backoff` (under the schedule, which continues). The failed step counts as done, its batch is
/// not trained again.
void recover(StepState& state, Optimizer& optimizer, LossScaler& scaler, double lr_backoff);

/// For a recovered step that ran out of memory, FP32 activations being larger: recompute every
/// block, then halve the parts of a micro-batch. False when nothing is left to spare. It stays for
/// the rest of the run.
/// `rows`: of the step's largest micro-batch.
bool reduce_memory_use(StepState& state, int64_t rows);

/// The same settings in a run that continues after its recovery.
void apply_recovered(const StepState& state, Optimizer& optimizer, LossScaler& scaler);

}  // namespace lft::train
