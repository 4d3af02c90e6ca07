// Gradients corrupted on their way to the check, like an overflow or a memory fault.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "src/train/optim/optimizer.h"

namespace lft::test {

/// For TrainOptions::gradients_ready: puts `value` into the last element of one gradient at each of
/// `steps`.
inline std::function<void(int64_t, train::Optimizer&)> spoil(std::vector<int64_t> steps,
                                                             float value) {
  return [steps = std::move(steps), value](int64_t step, train::Optimizer& optimizer) {
    if (std::find(steps.begin(), steps.end(), step) == steps.end()) return;
    at::Tensor gradient = optimizer.slots()[1].param.tensor.mutable_grad();
    gradient.view(-1)[gradient.numel() - 1] = value;
  };
}

}  // namespace lft::test
