#include "models/ops/recurrent/gated_norm.h"

#include <ATen/ATen.h>

#include "models/base/dims.h"

namespace lft::ops {

at::Tensor gated_rms_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                          double eps) {
  expect_last_dim(x, "x", {"d", weight.size(0)});
  expect_dims_like(gate, "gate", x, {"d", weight.size(0)});
  const at::ScalarType type = x.scalar_type(),
                       wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor from = x.to(wide);
  const at::Tensor normed = (from * at::rsqrt(at::mean(from * from, -1, true) + eps)).to(type);
  return ((weight * normed).to(wide) * at::silu(gate.to(wide))).to(type);
}

}  // namespace lft::ops
