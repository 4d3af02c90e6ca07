#include "models/lora/lora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "models/base/call.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/linear/linear.h"

namespace lft::lora {

LoraAdapter::LoraAdapter(const layers::LinearImpl& layer, const LoraOptions& options, double scale)
    : layers::LinearAdapter("LoraAdapter"), scale_(scale), dropout_(options.dropout) {
  const at::TensorOptions master = at::TensorOptions().dtype(at::kFloat).device(layer.device());
  a_ri = register_parameter("lora_A", at::empty({options.rank, layer.weight.size(1)}, master),
                            /*requires_grad=*/false);
  b_or = register_parameter("lora_B", at::empty({layer.weight.size(0), options.rank}, master),
                            /*requires_grad=*/false);
  a_shadow_ = c10::make_intrusive<ops::Shadow>(a_ri, 1.0);
  b_shadow_ = c10::make_intrusive<ops::Shadow>(b_or, scale_);
}

at::Tensor LoraAdapter::forward(const at::Tensor& x, const ops::Weight& weight_oi,
                                const at::Tensor& bias_o) {
  return ops::linear(x, weight_oi, bias_o, *low_rank());
}

at::Tensor LoraAdapter::forward_swiglu(const at::Tensor& gate, const at::Tensor& up,
                                       const ops::Weight& weight_oi, const at::Tensor& bias_o) {
  return ops::linear_swiglu(gate, up, weight_oi, bias_o, *low_rank());
}

std::optional<ops::LowRank> LoraAdapter::low_rank() const {
  return update_with(ops::dropout_mask(dropout_, current_module_path()));
}

at::Tensor LoraAdapter::merged_oi(const at::Tensor& weight_oi) const {
  const at::NoGradGuard no_grad;
  return at::mm(b_or, a_ri).mul_(scale_).add_(weight_oi);
}

double lora_scale(const LoraOptions& options) {
  const auto rank = static_cast<double>(options.rank);
  return options.alpha / (options.variant == "rslora" ? std::sqrt(rank) : rank);
}

}  // namespace lft::lora
