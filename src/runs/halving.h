// Successive halving: the step at which the runs of a sweep are compared.
#pragma once
#include <cstdint>

namespace lft::runs {

/// The first step with an evaluation at or after a third of the steps; the last step if that comes
/// first. `eval_every` is train.eval_every_steps, above 0.
int64_t halving_step(int64_t total_steps, int64_t eval_every);

}  // namespace lft::runs
