// Checks a finished run before its adapter is saved.
#pragma once

#include "models/family/batch.h"
#include "models/family/family.h"
#include "src/train/optim/optimizer.h"

namespace lft::train {

/// kNumeric with the reason unless every trained tensor is finite, every trained lora_B differs
/// from zero (or from its initial value), and the logits of `probe` with the adapters differ from
/// those without (or with the initial adapters). Without adapters (full fine-tuning) only
/// finiteness is checked. Changes nothing.
void check_trained(family::Model& model, const Optimizer& optimizer, const family::Batch& probe,
                   at::ScalarType compute);

}  // namespace lft::train
