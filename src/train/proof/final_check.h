// What a finished run must show before its adapter is saved.
#pragma once

#include "models/family/batch.h"
#include "models/family/family.h"
#include "src/train/optim/optimizer.h"

namespace lft::train {

/// kNumeric with the reason unless every trained tensor is finite, every trained lora_B has moved
/// off zero (or off what it started as), and the logits of `probe` with the adapters differ from
/// those without (or with the adapters that they started as). Without
/// adapters (everything trained whole) only the first is asked. Changes nothing.
void check_trained(family::Model& model, const Optimizer& optimizer, const family::Batch& probe,
                   at::ScalarType compute);

}  // namespace lft::train
