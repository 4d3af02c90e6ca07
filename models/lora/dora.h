// DoRA (Liu et al. 2024): W + scale B A gives a weight its directions, and a trained magnitude each
// row's length: y = g (x W^T + scale x A^T B^T) + b with g = m / ||W + scale B A||, a norm a row
// that counts as a constant in the backward pass (their section 4.3). Knows no model family.
#pragma once
#include "models/layers/linear.h"
#include "models/lora/inject.h"

namespace lft::lora {

/// Parameters "lora_A" [rank, in], "lora_B" [out, rank] and "lora_magnitude_vector" [out] are
/// float32, uninitialised and frozen. Dropout is of the input of all but the plain layer, as in
/// PEFT: y = x W^T + b + (g - 1) d W^T + g scale d A^T B^T with d = dropout(x).
class DoraAdapter : public layers::LinearAdapter {
 public:
  DoraAdapter(const layers::LinearImpl& layer, const LoraOptions& options, double scale);
  at::Tensor forward(const at::Tensor& x, const ops::Weight& weight_oi,
                     const at::Tensor& bias_o) override;
  at::Tensor merged_oi(const at::Tensor& weight_oi) const override;
  at::Tensor a_ri, b_or, magnitude_o;

 private:
  double scale_, dropout_;
};

/// ||W + scale B A|| of each row, float32 [out], without a graph. The magnitude that leaves a layer
/// as it is has this length at B = 0.
at::Tensor dora_norm_o(const ops::Weight& weight_oi, const at::Tensor& a_ri, const at::Tensor& b_or,
                       double scale);
Variant dora_variant();
/// m (W + scale B A) / ||W + scale B A||, float32 [out, in].
at::Tensor dora_merged_oi(const at::Tensor& weight_oi, const at::Tensor& a_ri,
                          const at::Tensor& b_or, const at::Tensor& magnitude_o, double scale);

}  // namespace lft::lora
