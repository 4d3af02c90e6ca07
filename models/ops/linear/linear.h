// Linear layers as one autograd function each: what is kept for the backward pass and which
// gradients are computed is decided here. Shape letters: t rows (all leading dimensions), i in, o
// out, r rank.
#pragma once
#include <ATen/core/Tensor.h>

#include "models/ops/core/dropout_mask.h"
#include "models/ops/elementwise/activation.h"
#include "models/ops/weight/masters.h"
#include "models/ops/weight/weight.h"

namespace lft::ops {

/// A low-rank update beside a linear layer: y += scale * dropout(x) A^T B^T. A and B are float32
/// masters.
struct LowRank {
  at::Tensor a_ri, b_or;  // undefined: none
  double scale = 1;
  DropoutMask mask;  // threshold 0: no dropout
  /// Of A, and of B with `scale`; null: copies are made at every product.
  ShadowPtr a_shadow = {}, b_shadow = {};
};

/// y = x W^T + b (+ the low-rank update) in compute_dtype(). Weights of another dtype are cast for
/// the product in both passes, and the copy is not kept; of codes weight.h knows. In BF16 B is
/// multiplied by `scale` before it is rounded. Keeps x only where a weight or A is trained, and x
/// A^T; the dropout mask is drawn again in the backward pass. A frozen weight costs no gradient.
at::Tensor linear(const at::Tensor& x, const Weight& weight_oi, const at::Tensor& bias_o,
                  const LowRank& update = {});

/// The same for x = act(gate) * up: keeps gate and up and rebuilds the product, instead of keeping
/// all three.
at::Tensor linear_gated(const at::Tensor& gate, const at::Tensor& up, const Weight& weight_oi,
                        const at::Tensor& bias_o, const LowRank& update = {},
                        Gate kind = Gate::kSilu);

/// Of a dense weight. (Spelled out: at::linear would be as good a match for a tensor.)
inline at::Tensor linear(const at::Tensor& x, const at::Tensor& weight_oi, const at::Tensor& bias_o,
                         const LowRank& update = {}) {
  return linear(x, Weight(weight_oi), bias_o, update);
}

}  // namespace lft::ops
