// Normalisation layers, computed in float32. Their output dtype is op_dtype()
// (models/ops/core/precision.h).
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "models/ops/elementwise/rms_norm.h"

namespace lft::layers {

/// y = w * x / sqrt(mean(x^2) + eps) over the last dimension; with `adds_one` 1 + w instead of w
/// (Gemma).
class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(int64_t size, double eps, at::TensorOptions options, bool adds_one = false);
  at::Tensor forward(const at::Tensor& x);
  /// Normalises x + delta, or x if delta is undefined.
  ops::Normed forward(const at::Tensor& x, const at::Tensor& delta);
  at::Tensor weight;

 private:
  at::Tensor factor() const;  // w or 1 + w
  double eps_;
  bool adds_one_;
};
TORCH_MODULE(RmsNorm);

/// y = w * (x - mean(x)) / sqrt(var(x) + eps) + b over the last dimension.
class LayerNormImpl : public torch::nn::Module {
 public:
  LayerNormImpl(int64_t size, double eps, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x);
  at::Tensor weight, bias;

 private:
  double eps_;
};
TORCH_MODULE(LayerNorm);

}  // namespace lft::layers
