#include "models/lora/lora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "models/base/call.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/linear/linear.h"

namespace lft::lora {
namespace {

std::shared_ptr<layers::LinearAdapter> make_lora(const layers::LinearImpl& layer,
                                                 const LoraOptions& options) {
  return std::make_shared<LoraAdapter>(layer, options, lora_scale(options));
}

at::Tensor merged_lora(const at::Tensor& weight_oi, const NamedTensors& tensors, double scale) {
  return lora_merged_oi(weight_oi, tensors.at("lora_A"), tensors.at("lora_B"), scale);
}

/// An uninitialised float32 parameter.
at::Tensor empty_master(const layers::LinearImpl& layer, at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions().dtype(at::kFloat).device(layer.device()));
}

}  // namespace

LoraAdapter::LoraAdapter(const layers::LinearImpl& layer, const LoraOptions& options, double scale)
    : LoraAdapter(empty_master(layer, {options.rank * layer.parts(), layer.weight.size(1)}),
                  empty_master(layer, {layer.weight.size(0), options.rank}), scale) {
  dropout_ = options.dropout;
}

LoraAdapter::LoraAdapter(const at::Tensor& a, const at::Tensor& b, double scale)
    : layers::LinearAdapter("LoraAdapter"), scale_(scale) {
  a_ri = register_parameter("lora_A", a, /*requires_grad=*/false);
  b_or = register_parameter("lora_B", b, /*requires_grad=*/false);
  a_shadow_ = c10::make_intrusive<ops::Shadow>(a_ri, 1.0);
  b_shadow_ = c10::make_intrusive<ops::Shadow>(b_or, scale_);
}

at::Tensor LoraAdapter::forward(const at::Tensor& x, const ops::Weight& weight_oi,
                                const at::Tensor& bias_o) {
  return ops::linear(x, weight_oi, bias_o, update());
}

at::Tensor LoraAdapter::forward_gated(const at::Tensor& gate, const at::Tensor& up, ops::Gate kind,
                                      const ops::Weight& weight_oi, const at::Tensor& bias_o) {
  return ops::linear_gated(gate, up, weight_oi, bias_o, update(), kind);
}

ops::LowRank LoraAdapter::update() const {
  return update_with(ops::dropout_mask(dropout_, current_module_path()));
}

std::optional<ops::LowRank> LoraAdapter::low_rank() const { return update(); }

at::Tensor LoraAdapter::merged_oi(const at::Tensor& weight_oi) const {
  return lora_merged_oi(weight_oi, a_ri, b_or, scale_);
}

at::Tensor lora_merged_oi(const at::Tensor& weight_oi, const at::Tensor& a_ri,
                          const at::Tensor& b_or, double scale) {
  const at::NoGradGuard no_grad;
  const int64_t experts = a_ri.size(0) / b_or.size(1);
  at::Tensor product =
      experts == 1 ? at::mm(b_or, a_ri)
                   : at::bmm(b_or.unflatten(0, {experts, -1}), a_ri.unflatten(0, {experts, -1}))
                         .flatten(0, 1);
  return product.mul_(scale).add_(weight_oi);
}

Variant lora_variant() {
  return {.name = "lora",
          .help = "scale is alpha / rank",
          .scale = alpha_over_rank,
          .make = make_lora,
          .merged_oi = merged_lora};
}

Variant rslora_variant() {
  return {.name = "rslora",
          .help = "scale is alpha / sqrt(rank)",
          .note = " (rank-stabilised scale)",
          .peft_flag = "use_rslora",
          .scale =
              [](const LoraOptions& options) {
                return options.alpha / std::sqrt(static_cast<double>(options.rank));
              },
          .make = make_lora,
          .merged_oi = merged_lora};
}

}  // namespace lft::lora
