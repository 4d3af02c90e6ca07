#include "src/train/step/recovery.h"

#include <ATen/Context.h>

namespace lft::train {

bool can_recover(const StepState& state, recipe::Choice<recipe::RecoveryRule> recovery) {
  return recovery == recipe::RecoveryRule::kFp32 && !state.recovered && state.compute != at::kFloat;
}

void recover(StepState& state, Optimizer& optimizer, LossScaler& scaler, double lr_backoff) {
  ++state.step;
  ++state.scheduled;
  state.skips_in_row = 0;
  state.recovered = true;
  state.compute = at::kFloat;
  state.lr_factor = lr_backoff;
  apply_recovered(state, optimizer, scaler);
}

bool reduce_memory_use(StepState& state, int64_t rows) {
  if (state.recompute != 1) {
    state.recompute = 1;
    return true;
  }
  if (state.split >= rows) return false;
  state.split *= 2;
  return true;
}

void apply_recovered(const StepState& state, Optimizer& optimizer, LossScaler& scaler) {
  at::globalContext().setAllowTF32CuBLAS(false);
  at::globalContext().setAllowTF32CuDNN(false);
  for (ParamGroup& group : optimizer.groups()) group.lr *= state.lr_factor;
  scaler = LossScaler({.enabled = false});
}

}  // namespace lft::train
