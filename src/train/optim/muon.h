// Muon (Keller Jordan), like torch.optim.Muon: a matrix is updated by its orthogonalised momentum.
// Other tensors are updated as in AdamW. Plain ATen ops on any device.
#pragma once
#include "src/train/optim/update_rule.h"

namespace lft::train {

/// The momentum of matrices is 0.95; betas and eps are for AdamW's update of other tensors.
RulePtr make_muon(const RuleOptions& options);

}  // namespace lft::train
