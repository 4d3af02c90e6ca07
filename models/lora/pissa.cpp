#include "models/lora/pissa.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kernels/common/error.h"

namespace lft::lora {
namespace {

at::Tensor host_copy(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

/// Twice the rank at the same scale.
LoraOptions saved_pissa_options(const LoraOptions& options) {
  return {.variant = "lora",
          .rank = 2 * options.rank,
          .alpha = 2 * options.alpha,
          .dropout = options.dropout};
}

}  // namespace

void PissaAdapter::begin(layers::LinearImpl& layer) {
  if (layer.device().is_meta()) return;
  if (layer.weight.is_meta()) {
    refuse(ErrorKind::kUsage, "PiSSA changes the weight of a layer, and this one is quantized",
           "lora.variant: pissa", "model.base_dtype: nf4 or fp8", "a weight in bf16, fp16 or fp32",
           "set another model.base_dtype, or lora.variant: lora");
  }
  const at::NoGradGuard no_grad;
  const int64_t rank = a_ri.size(0);
  const at::Tensor weight_oi = host_copy(layer.weight);
  const auto [u, s, vh] = at::linalg_svd(weight_oi, /*full_matrices=*/false);
  const at::Tensor root_r = s.narrow(0, 0, rank).div(scale()).sqrt_();
  start_a_ri_ = vh.narrow(0, 0, rank).mul(root_r.unsqueeze(1)).contiguous();
  start_b_or_ = u.narrow(1, 0, rank).mul(root_r).contiguous();
  a_ri.copy_(start_a_ri_);
  b_or.copy_(start_b_or_);
  layer.weight.copy_(weight_oi - at::mm(start_b_or_ * scale(), start_a_ri_));
}

std::shared_ptr<layers::LinearAdapter> PissaAdapter::at_start() const {
  const auto copy = [&](const at::Tensor& start) {
    return start.to(a_ri.device(), at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  };
  return std::make_shared<LoraAdapter>(copy(start_a_ri_), copy(start_b_or_), scale());
}

NamedTensors PissaAdapter::saved() const {
  const at::NoGradGuard no_grad;
  return {{"lora_A", at::cat({host_copy(a_ri), start_a_ri_}, 0)},
          {"lora_B", at::cat({host_copy(b_or), start_b_or_.neg()}, 1)}};
}

Variant pissa_variant() {
  Variant variant = lora_variant();
  variant.name = "pissa";
  variant.help =
      "scale is alpha / rank; starts from the weight's largest singular values, saved as lora of "
      "twice the rank";
  variant.changes_weight = true;
  variant.make = [](const layers::LinearImpl& layer,
                    const LoraOptions& options) -> std::shared_ptr<layers::LinearAdapter> {
    return std::make_shared<PissaAdapter>(layer, options, lora_scale(options));
  };
  variant.begin = [](layers::LinearImpl& layer, layers::LinearAdapter& adapter) {
    dynamic_cast<PissaAdapter&>(adapter).begin(layer);
  };
  variant.saved_as = saved_pissa_options;
  variant.saved = [](layers::LinearAdapter& adapter) {
    return dynamic_cast<PissaAdapter&>(adapter).saved();
  };
  return variant;
}

}  // namespace lft::lora
