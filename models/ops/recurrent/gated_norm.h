// RMSNorm with a gate, as at the end of a Gated DeltaNet layer.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// y = weight * (x / sqrt(mean(x^2) + eps)) * silu(gate) over the last dimension, in float32, of
/// the dtype of x. As in transformers the normalised x is rounded to the dtype of x, and its
/// product with the weight to the widest dtype of both. A frozen weight gets no gradient.
///
/// Saved for the backward pass: x and gate.
at::Tensor gated_rms_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                          double eps);

}  // namespace lft::ops
