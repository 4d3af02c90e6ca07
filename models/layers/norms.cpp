#include "models/layers/norms.h"

#include <ATen/ATen.h>

#include "models/ops/precision.h"
#include "models/ops/rms_norm.h"

namespace lft {

RmsNormImpl::RmsNormImpl(int64_t size, double eps, at::TensorOptions options) : torch::nn::Module("RmsNorm"), eps_(eps) {
  weight = register_parameter("weight", at::empty({size}, options), /*requires_grad=*/false);
}

at::Tensor RmsNormImpl::forward(const at::Tensor& x) { return rms_norm(x, weight, eps_); }

LayerNormImpl::LayerNormImpl(int64_t size, double eps, at::TensorOptions options) : torch::nn::Module("LayerNorm"), eps_(eps) {
  weight = register_parameter("weight", at::empty({size}, options), /*requires_grad=*/false);
  bias = register_parameter("bias", at::empty({size}, options), /*requires_grad=*/false);
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  // Equal dtypes: ATen accumulates in float32 by itself. Else everything is widened first.
  const bool equal = x.scalar_type() == weight.scalar_type();
  const at::Tensor input = equal ? x : x.to(at::kFloat), w = equal ? weight : weight.to(at::kFloat), b = equal ? bias : bias.to(at::kFloat);
  return at::layer_norm(input, {weight.size(0)}, w, b, eps_).to(compute_dtype());
}

}  // namespace lft
