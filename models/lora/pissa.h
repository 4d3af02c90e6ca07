// PiSSA (Meng et al. 2024): LoRA that starts as the weight's largest singular values and
// directions, over a frozen weight that holds the rest. Saved as plain LoRA of twice the rank for
// the weight as it was. Knows no model family.
#pragma once
#include "models/lora/lora.h"

namespace lft::lora {

/// LoRA's parameters and passes.
class PissaAdapter : public LoraAdapter {
 public:
  using LoraAdapter::LoraAdapter;
  /// With W = U S V^T: A = sqrt(S_r / scale) V_r^T, B = U_r sqrt(S_r / scale) of the `rank` largest
  /// singular values, and the layer's weight becomes W - scale B A in its own dtype. In float32 on
  /// the CPU: the same bits for the same weight, library and number of threads. Of a layer without
  /// values (device meta) nothing is written. kUsage where the weight is codes.
  void begin(layers::LinearImpl& layer);
  std::shared_ptr<layers::LinearAdapter> at_start() const override;
  /// B A - B_0 A_0, as [A; A_0] and [B, -B_0], float32 on the CPU: what training adds to W.
  NamedTensors saved() const;

 private:
  at::Tensor start_a_ri_, start_b_or_;  // float32 on the CPU
};

Variant pissa_variant();

}  // namespace lft::lora
