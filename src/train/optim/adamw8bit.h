// AdamW with the moments of large tensors in 8 bits, like bitsandbytes' AdamW8bit.
#pragma once
#include "src/train/optim/update_rule.h"

namespace lft::train {

/// Tensors with fewer elements keep their moments in float32.
constexpr int64_t kLeast8Bit = 4096;

RulePtr make_adamw8bit(const RuleOptions& options);

}  // namespace lft::train
