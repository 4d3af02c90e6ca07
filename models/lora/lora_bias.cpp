#include "models/lora/lora_bias.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace lft::lora {
namespace {

constexpr const char* kBias = "lora_B_bias";

std::vector<AdapterTensor> lora_bias_tensors() {
  std::vector<AdapterTensor> tensors = low_rank_tensors();
  tensors.push_back({.name = kBias,
                     .stored = "lora_B.bias",
                     .shape = [](int64_t out, int64_t, int64_t) { return std::vector{out}; }});
  return tensors;
}

}  // namespace

LoraBiasAdapter::LoraBiasAdapter(const layers::LinearImpl& layer, const LoraOptions& options,
                                 double scale)
    : LoraAdapter(layer, options, scale) {
  update_bias_o_ =
      register_parameter(kBias,
                         at::empty({layer.weight.size(0)},
                                   at::TensorOptions().dtype(at::kFloat).device(layer.device())),
                         /*requires_grad=*/false);
}

at::Tensor LoraBiasAdapter::forward(const at::Tensor& x, const ops::Weight& weight_oi,
                                    const at::Tensor& bias_o) {
  return LoraAdapter::forward(x, weight_oi, shifted(bias_o));
}

at::Tensor LoraBiasAdapter::forward_gated(const at::Tensor& gate, const at::Tensor& up,
                                          ops::Gate kind, const ops::Weight& weight_oi,
                                          const at::Tensor& bias_o) {
  return LoraAdapter::forward_gated(gate, up, kind, weight_oi, shifted(bias_o));
}

at::Tensor LoraBiasAdapter::shifted(const at::Tensor& bias_o) const {
  const at::Tensor shift = update_bias_o_ * scale();
  return bias_o.defined() ? bias_o + shift : shift;
}

at::Tensor LoraBiasAdapter::bias_shift_o() const {
  const at::NoGradGuard no_grad;
  return update_bias_o_ * scale();
}

Variant lora_bias_variant() {
  Variant variant = lora_variant();
  variant.name = "lora_bias";
  variant.help = "scale is alpha / rank, and also trains a bias after B";
  variant.note = " (with a bias)";
  variant.peft_flag = "lora_bias";
  variant.says_false = false;
  variant.tensors = lora_bias_tensors();
  variant.make = [](const layers::LinearImpl& layer,
                    const LoraOptions& options) -> std::shared_ptr<layers::LinearAdapter> {
    return std::make_shared<LoraBiasAdapter>(layer, options, lora_scale(options));
  };
  variant.begin = [](layers::LinearImpl&, layers::LinearAdapter& adapter) {
    adapter.named_parameters()[kBias].zero_();
  };
  variant.bias_shift_o = [](const NamedTensors& tensors, double scale) {
    return tensors.at(kBias) * scale;
  };
  return variant;
}

}  // namespace lft::lora
