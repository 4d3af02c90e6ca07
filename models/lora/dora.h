// DoRA (Liu et al. 2024): W + scale B A determines the direction of each row, a trained magnitude
// its length: y = g (x W^T + scale x A^T B^T) + b with g = m / ||W + scale B A||. The norm of each
// row is constant in the backward pass (section 4.3 of the paper). Independent of model families.
#pragma once
#include "models/layers/linear.h"
#include "models/lora/inject.h"

namespace lft::lora {

/// Parameters "lora_A" [rank, in], "lora_B" [out, rank] and "lora_magnitude_vector" [out] are
/// float32, uninitialised and frozen. Dropout applies to the input except for the base layer's, as
/// in PEFT: y = x W^T + b + (g - 1) d W^T + g scale d A^T B^T with d = dropout(x).
class DoraAdapter : public layers::LinearAdapter {
 public:
  DoraAdapter(const layers::LinearImpl& layer, const LoraOptions& options, double scale);
  at::Tensor forward(const at::Tensor& x, const ops::Weight& weight_oi,
                     const at::Tensor& bias_o) override;
  at::Tensor merged_oi(const at::Tensor& weight_oi) const override;
  /// dora_norm_o() of the layer's weight, computed again only after A, B or the weight has changed;
  /// always the same tensor.
  const at::Tensor& norm_o(const ops::Weight& weight_oi);
  void refresh(const ops::Weight& weight_oi) override { norm_o(weight_oi); }
  at::Tensor a_ri, b_or, magnitude_o;

 private:
  double scale_, dropout_;
  at::Tensor norm_o_;
  std::vector<std::pair<const void*, int64_t>>
      normed_;  // what it was computed from: addresses and versions
};

/// ||W + scale B A|| of each row, float32 [out], without a graph. At B = 0 it is the initial
/// magnitude.
at::Tensor dora_norm_o(const ops::Weight& weight_oi, const at::Tensor& a_ri, const at::Tensor& b_or,
                       double scale);
Variant dora_variant();
/// m (W + scale B A) / ||W + scale B A||, float32 [out, in].
at::Tensor dora_merged_oi(const at::Tensor& weight_oi, const at::Tensor& a_ri,
                          const at::Tensor& b_or, const at::Tensor& magnitude_o, double scale);

}  // namespace lft::lora
