// The training step of `lft doctor`.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <string>
#include <vector>

#include "src/train/optim/optimizer.h"

namespace lft::debug {

/// A training step small enough to be known in closed form: two linear layers with LoRA, all
/// numbers whole. It proves that products, backward pass, loss scaler, optimizer and device work
/// together in a precision.
struct StepCheck {
  std::string device, precision;  // "cpu", "fp16"
  std::vector<std::string>
      failures;     // what came out otherwise than the closed form; empty: it passed
  double loss = 0;  // of the good step
};

/// First a step that overflows and must change nothing (FP16: by its loss scale, which then backs
/// off; else by its input), then a good one whose loss and gradients must be exact and whose
/// weights and moments must be AdamW's first ones. What LibTorch throws passes through.
/// `gradients_ready`: a test's way in, before the gradients are checked.
StepCheck check_step(
    at::Device device, at::ScalarType compute,
    const std::function<void(int64_t step, train::Optimizer&)>& gradients_ready = {});

}  // namespace lft::debug
