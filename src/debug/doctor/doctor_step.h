// The training step of `lft doctor`.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <string>
#include <vector>

#include "src/train/optim/optimizer.h"

namespace lft::debug {

/// A training step with a known closed form: two linear layers with LoRA and integers only. It
/// checks products, backward pass, loss scaler, optimizer and device in a precision.
struct StepCheck {
  std::string device, precision;      // "cpu", "fp16"
  std::vector<std::string> failures;  // differences from the closed form; empty: it passed
  double loss = 0;                    // of the good step
};

/// First runs a step that overflows and must change nothing (in FP16 by its loss scale, which then
/// decreases; otherwise by its input), then a good step whose loss and gradients must be exact and
/// whose weights and moments must be those of AdamW's first step. LibTorch's exceptions are
/// rethrown. `gradients_ready` is for tests, before the gradients are checked.
StepCheck check_step(
    at::Device device, at::ScalarType compute,
    const std::function<void(int64_t step, train::Optimizer&)>& gradients_ready = {});

}  // namespace lft::debug
