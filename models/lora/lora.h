// LoRA (Hu et al. 2021) and rsLoRA (Kalajdzievski 2023): y += scale * dropout(x) A^T B^T.
// Independent of model families.
#pragma once
#include "models/layers/linear.h"
#include "models/lora/inject.h"

namespace lft::lora {

/// A low-rank adapter of one linear layer. Parameters "lora_A" [rank, in] and "lora_B" [out, rank]
/// are float32, uninitialised and frozen.
class LoraAdapter : public layers::LinearAdapter {
 public:
  LoraAdapter(const layers::LinearImpl& layer, const LoraOptions& options, double scale);
  /// An adapter with these values, without dropout.
  LoraAdapter(const at::Tensor& a_ri, const at::Tensor& b_or, double scale);
  at::Tensor forward(const at::Tensor& x, const ops::Weight& weight_oi,
                     const at::Tensor& bias_o) override;
  at::Tensor forward_gated(const at::Tensor& gate, const at::Tensor& up, ops::Gate kind,
                           const ops::Weight& weight_oi, const at::Tensor& bias_o) override;
  std::optional<ops::LowRank> low_rank() const override;
  ops::LowRank shared_update() const override {
    return dropout_ > 0 ? ops::LowRank{} : update_with({});
  }
  std::vector<ops::ShadowPtr> shadows() const override { return {a_shadow_, b_shadow_}; }
  at::Tensor merged_oi(const at::Tensor& weight_oi) const override;
  double scale() const { return scale_; }
  at::Tensor a_ri, b_or;

 private:
  /// The mask of the running call.
  ops::LowRank update() const;
  ops::LowRank update_with(const ops::DropoutMask& mask) const {
    return {a_ri, b_or, scale_, mask, a_shadow_, b_shadow_};
  }

  double scale_, dropout_ = 0;
  ops::ShadowPtr a_shadow_, b_shadow_;
};

Variant lora_variant();
Variant rslora_variant();
/// W + scale B A, float32 [out, in]; with several A's of B's rank, one below the other, that of
/// each expert.
at::Tensor lora_merged_oi(const at::Tensor& weight_oi, const at::Tensor& a_ri,
                          const at::Tensor& b_or, double scale);

}  // namespace lft::lora
