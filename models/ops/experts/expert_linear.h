// The linear layers of the experts of a mixture: one product for the rows of each expert, without
// padding. Weights and factors of the experts are one below the other. Shape letters: t tokens, r
// rows sorted by expert (expert_rows.h), e experts, i in, o out, m features between both layers, q
// rank of one expert.
#pragma once
#include "models/ops/experts/expert_rows.h"
#include "models/ops/linear/linear.h"

namespace lft::ops {

/// The weight [e * o, i] and the low-rank update of all experts: A [e * q, i], B [e * o, q],
/// without dropout.
struct ExpertLayer {
  const Weight& weight;
  const LowRank& update;
};

/// y = W_e x (+ the update) for the expert and the token of each row: x [t, i] -> [r, o], in
/// compute_dtype(). Saved for the backward pass: x if A or the weight is trained, the low-rank
/// product. An expert without rows gets gradients of 0.
at::Tensor expert_linear(const at::Tensor& x_ti, const ExpertRowsPtr& rows,
                         const ExpertLayer& layer);

/// The sum over the rows of each token of W_e (share * act(gate) * up), with (gate, up) one row of
/// [r, 2 m]: [t, o]. `share_tk` weighs a token's choices. Saved: gate and up, share, the low-rank
/// product; the hidden features are recomputed.
at::Tensor expert_linear_gated(const at::Tensor& gate_up, const at::Tensor& share_tk,
                               const ExpertRowsPtr& rows, const ExpertLayer& layer, Gate kind);

}  // namespace lft::ops
