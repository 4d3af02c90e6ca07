// Linear layers, one autograd function each, which decides what is saved for the backward pass and
// which gradients are computed. Shape letters: t rows (all leading dimensions), i in, o out, r
// rank.
#pragma once
#include <ATen/core/Tensor.h>

#include "models/ops/core/dropout_mask.h"
#include "models/ops/elementwise/activation.h"
#include "models/ops/weight/masters.h"
#include "models/ops/weight/weight.h"

namespace lft::ops {

/// A low-rank update of a linear layer: y += scale * dropout(x) A^T B^T. A and B are float32 master
/// weights.
struct LowRank {
  at::Tensor a_ri, b_or;  // undefined: none
  double scale = 1;
  DropoutMask mask;  // threshold 0: no dropout
  /// Stored copies of A, and of B with `scale`; null: every product makes new ones.
  ShadowPtr a_shadow = {}, b_shadow = {};
};

/// y = x W^T + b (+ the low-rank update) in compute_dtype(). A weight of another dtype is cast for
/// the product in both passes, and the copy is not saved; quantized weights are handled by
/// weight.h. In BF16 B is multiplied by `scale` before it is rounded. x is saved only if a weight
/// or A is trained, x A^T always; the dropout mask is recomputed in the backward pass. A frozen
/// weight gets no gradient.
at::Tensor linear(const at::Tensor& x, const Weight& weight_oi, const at::Tensor& bias_o,
                  const LowRank& update = {});

/// The same for x = act(gate) * up: saves gate and up and recomputes the product.
at::Tensor linear_gated(const at::Tensor& gate, const at::Tensor& up, const Weight& weight_oi,
                        const at::Tensor& bias_o, const LowRank& update = {},
                        Gate kind = Gate::kSilu);

/// For a dense weight. (Without this overload at::linear would match a tensor equally well.)
inline at::Tensor linear(const at::Tensor& x, const at::Tensor& weight_oi, const at::Tensor& bias_o,
                         const LowRank& update = {}) {
  return linear(x, Weight(weight_oi), bias_o, update);
}

}  // namespace lft::ops
