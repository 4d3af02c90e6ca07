// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"): one moment, and updates
// of constant size in the sign direction of averaged gradients. Plain ATen ops on any device.
#pragma once
#include "src/train/optim/update_rule.h"

namespace lft::train {

/// betas[0] mixes the gradient into the step, betas[1] into the moment; eps is not used. The
/// recipe's default betas[1] = 0.999 is AdamW's, Lion's usual one is 0.99.
RulePtr make_lion(const RuleOptions& options);

}  // namespace lft::train
