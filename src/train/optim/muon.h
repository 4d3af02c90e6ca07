// Muon (Keller Jordan) as torch.optim.Muon: a matrix moves along its orthogonalised momentum.
// What is no matrix is updated as AdamW does. Plain ATen ops on any device.
#pragma once
#include "src/train/optim/update_rule.h"

namespace lft::train {

/// The momentum of matrices is 0.95; betas and eps are those of AdamW's update of other tensors.
RulePtr make_muon(const RuleOptions& options);

}  // namespace lft::train
