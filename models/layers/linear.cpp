#include "models/layers/linear.h"

#include <ATen/ATen.h>

#include "models/base/dims.h"
#include "models/ops/elementwise/activation.h"
#include "models/ops/linear/linear.h"

namespace lft::layers {

at::Tensor LinearAdapter::forward_gated(const at::Tensor& gate, const at::Tensor& up,
                                        ops::Gate kind, const ops::Weight& weight_oi,
                                        const at::Tensor& bias_o) {
  return forward(ops::gated(gate, up, kind), weight_oi, bias_o);
}

LinearImpl::LinearImpl(int64_t in, int64_t out, bool has_bias, at::TensorOptions options,
                       int64_t of_experts)
    : torch::nn::Module("Linear"), experts(of_experts) {
  weight = register_parameter("weight", at::empty({out, in}, options), /*requires_grad=*/false);
  if (has_bias)
    bias = register_parameter("bias", at::empty({out}, options), /*requires_grad=*/false);
}

at::Tensor LinearImpl::forward(const at::Tensor& x) {
  if (adapter_ == nullptr) return ops::linear(x, stored(), bias);
  expect_last_dim(x, "x", {"i", weight.size(1)});
  const at::Tensor y = adapter_->forward(x, stored(), bias);
  expect_dims_like(y, "the adapter's output", x, {"o", weight.size(0)});
  return y;
}

at::Tensor LinearImpl::forward(const at::Tensor& gate, const at::Tensor& up, ops::Gate kind) {
  if (adapter_ == nullptr) return ops::linear_gated(gate, up, stored(), bias, {}, kind);
  expect_last_dim(gate, "gate", {"i", weight.size(1)});
  expect_last_dim(up, "up", {"i", weight.size(1)});
  const at::Tensor y = adapter_->forward_gated(gate, up, kind, stored(), bias);
  expect_dims_like(y, "the adapter's output", gate, {"o", weight.size(0)});
  return y;
}

void LinearImpl::store(c10::intrusive_ptr<ops::CodedWeight> weight_oi) {
  const at::Tensor shape = at::empty({weight_oi->out, weight_oi->in}, at::kMeta);
  expect_dims(shape, "weight", {{"o", weight.size(0)}, {"i", weight.size(1)}});
  coded_ = std::move(weight_oi);
  weight = parameters_["weight"] = at::empty(weight.sizes(), weight.options().device(at::kMeta));
  for (const auto& [name, part] : coded_->parts()) register_buffer(name, part);
}

void LinearImpl::hold_bias(at::Device device) {
  if (!bias.defined() || !bias.is_meta()) return;
  bias = parameters_["bias"] = at::empty(bias.sizes(), bias.options().device(device));
}

ops::Weight LinearImpl::stored() const {
  return coded_ ? ops::Weight(coded_) : ops::Weight(weight);
}

at::Device LinearImpl::device() const { return coded_ ? coded_->device() : weight.device(); }

void LinearImpl::set_adapter(std::shared_ptr<LinearAdapter> adapter) {
  if (adapter_ != nullptr) unregister_module("adapter");
  adapter_ = std::move(adapter);
  if (adapter_ != nullptr) register_module("adapter", adapter_);
}

}  // namespace lft::layers
