// PiSSA (Meng et al. 2024): A and B start as the largest singular components of the weight, and the
// frozen weight becomes the residual. Saved as plain LoRA of twice the rank for the original
// weight. Independent of model families.
#pragma once
#include "models/lora/lora.h"

namespace lft::lora {

/// Has the parameters and the forward pass of LoRA.
class PissaAdapter : public LoraAdapter {
 public:
  using LoraAdapter::LoraAdapter;
  /// With W = U S V^T: A = sqrt(S_r / scale) V_r^T and B = U_r sqrt(S_r / scale) for the `rank`
  /// largest singular values; the weight of the layer becomes W - scale B A in its own dtype.
  /// Computed in float32 on the CPU: bitwise the same for the same weight, library and number of
  /// threads. Does nothing for a layer without values (device meta). Throws kUsage for a quantized
  /// weight.
  void begin(layers::LinearImpl& layer);
  std::shared_ptr<layers::LinearAdapter> at_start() const override;
  /// The change of W by training, B A - B_0 A_0, as [A; A_0] and [B, -B_0], float32 on the CPU.
  NamedTensors saved() const;

 private:
  at::Tensor start_a_ri_, start_b_or_;  // float32 on the CPU
};

Variant pissa_variant();

}  // namespace lft::lora
