// LoRA with a bias after B, as lora_bias in PEFT: y += scale (dropout(x) A^T B^T + b). Independent
// of model families.
#pragma once
#include "models/lora/lora.h"

namespace lft::lora {

/// The parameters of LoRA and "lora_B_bias" [out], float32, uninitialised and frozen.
class LoraBiasAdapter : public LoraAdapter {
 public:
  LoraBiasAdapter(const layers::LinearImpl& layer, const LoraOptions& options, double scale);
  at::Tensor forward(const at::Tensor& x, const ops::Weight& weight_oi,
                     const at::Tensor& bias_o) override;
  at::Tensor forward_gated(const at::Tensor& gate, const at::Tensor& up, ops::Gate kind,
                           const ops::Weight& weight_oi, const at::Tensor& bias_o) override;
  std::optional<ops::LowRank> low_rank() const override { return std::nullopt; }
  ops::LowRank shared_update() const override { return {}; }
  at::Tensor bias_shift_o() const override;

 private:
  at::Tensor shifted(const at::Tensor& bias_o) const;

  at::Tensor update_bias_o_;
};

Variant lora_bias_variant();

}  // namespace lft::lora
