#include "models/layers/norms.h"

#include <ATen/ATen.h>

#include "models/base/dims.h"
#include "models/ops/core/precision.h"

namespace lft::layers {

RmsNormImpl::RmsNormImpl(int64_t size, double eps, at::TensorOptions options, bool adds_one)
    : torch::nn::Module("RmsNorm"), eps_(eps), adds_one_(adds_one) {
  weight = register_parameter("weight", at::empty({size}, options), /*requires_grad=*/false);
}

at::Tensor RmsNormImpl::factor() const { return adds_one_ ? weight.to(at::kFloat) + 1 : weight; }

at::Tensor RmsNormImpl::forward(const at::Tensor& x) { return ops::rms_norm(x, factor(), eps_); }

ops::Normed RmsNormImpl::forward(const at::Tensor& x, const at::Tensor& delta) {
  return ops::add_rms_norm(x, delta, factor(), eps_);
}

LayerNormImpl::LayerNormImpl(int64_t size, double eps, at::TensorOptions options)
    : torch::nn::Module("LayerNorm"), eps_(eps) {
  weight = register_parameter("weight", at::empty({size}, options), /*requires_grad=*/false);
  bias = register_parameter("bias", at::empty({size}, options), /*requires_grad=*/false);
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  expect_last_dim(x, "x", {"d", weight.size(0)});
  const at::ScalarType type = x.scalar_type(),
                       result = ops::op_dtype(ops::Op::kLayerNorm, at::kFloat);
  // ATen accumulates in float32, but rounds to its operands' dtype and requires a single
  // dtype.
  const bool direct = type == weight.scalar_type() && (type == at::kFloat || type == result);
  if (direct) return at::layer_norm(x, {weight.size(0)}, weight, bias, eps_).to(result);
  return at::layer_norm(x.to(at::kFloat), {weight.size(0)}, weight.to(at::kFloat),
                        bias.to(at::kFloat), eps_)
      .to(result);
}

}  // namespace lft::layers
