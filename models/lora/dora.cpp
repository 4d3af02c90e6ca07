#include "models/lora/dora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "models/base/call.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/linear/linear.h"

namespace lft::lora {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct KeptMask : torch::CustomClassHolder {
  explicit KeptMask(const ops::DropoutMask& of) : mask(of) {}
  ops::DropoutMask mask;
};

/// dropout() with a graph: the mask is recomputed in the backward pass.
struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const ops::DropoutMask* mask) {
    ctx->saved_data["mask"] = c10::IValue::make_capsule(c10::make_intrusive<KeptMask>(*mask));
    return ops::dropout(x, *mask);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& dy) {
    const auto kept =
        c10::static_intrusive_pointer_cast<KeptMask>(ctx->saved_data["mask"].toCapsule());
    return {ops::dropout(dy[0].contiguous(), kept->mask), at::Tensor()};
  }
};

/// W + scale B A in float32, as a new tensor.
at::Tensor directions_oi(const ops::Weight& weight_oi, const at::Tensor& a_ri,
                         const at::Tensor& b_or, double scale) {
  const at::Tensor weight = weight_oi.to(at::kFloat);
  return weight_oi.can_alias_as(at::kFloat) ? at::addmm(weight, b_or, a_ri, 1, scale)
                                            : weight.addmm_(b_or, a_ri, 1, scale);
}

/// m / ||W + scale B A||; 0 for a row of zeros, whose magnitude is also 0.
at::Tensor gain_o(const at::Tensor& magnitude_o, const at::Tensor& norm_o) {
  return magnitude_o / norm_o.clamp_min(std::numeric_limits<float>::min());
}

constexpr const char* kMagnitude = "lora_magnitude_vector";

std::shared_ptr<layers::LinearAdapter> make_dora(const layers::LinearImpl& layer,
                                                 const LoraOptions& options) {
  return std::make_shared<DoraAdapter>(layer, options, lora_scale(options));
}

/// The magnitude is the norm of each row of the weight.
void begin_dora(layers::LinearImpl& layer, layers::LinearAdapter& adapter) {
  auto parameters = adapter.named_parameters();
  parameters[kMagnitude].copy_(dora_norm_o(layer.stored(), parameters["lora_A"],
                                           parameters["lora_B"],
                                           /*scale=*/0));
}

std::vector<AdapterTensor> dora_tensors() {
  std::vector<AdapterTensor> tensors = low_rank_tensors();
  tensors.push_back({.name = kMagnitude,
                     .stored = kMagnitude,
                     .shape = [](int64_t out, int64_t, int64_t) { return std::vector{out}; }});
  return tensors;
}

/// Saved for the gradient of the magnitudes: the layer's product before scaling; with dropout, the
/// two scaled products and the dropped input.
double kept_by_dora(double in, double out, bool drops) { return drops ? 2 * out + in : out; }

}  // namespace

Variant dora_variant() {
  return {.name = "dora",
          .help = "scale is alpha / rank, and also trains the length of each row of the weight",
          .note = " (DoRA)",
          .peft_flag = "use_dora",
          .tensors = dora_tensors(),
          .scale = alpha_over_rank,
          .make = make_dora,
          .begin = begin_dora,
          .merged_oi =
              [](const at::Tensor& weight_oi, const NamedTensors& tensors, double scale) {
                return dora_merged_oi(weight_oi, tensors.at("lora_A"), tensors.at("lora_B"),
                                      tensors.at(kMagnitude), scale);
              },
          .memory = {.low_rank_only = false, .makes_weight = true, .kept = kept_by_dora}};
}

DoraAdapter::DoraAdapter(const layers::LinearImpl& layer, const LoraOptions& options, double scale)
    : layers::LinearAdapter("DoraAdapter"), scale_(scale), dropout_(options.dropout) {
  const at::TensorOptions master = at::TensorOptions().dtype(at::kFloat).device(layer.device());
  const int64_t out = layer.weight.size(0), in = layer.weight.size(1);
  a_ri =
      register_parameter("lora_A", at::empty({options.rank, in}, master), /*requires_grad=*/false);
  b_or =
      register_parameter("lora_B", at::empty({out, options.rank}, master), /*requires_grad=*/false);
  magnitude_o = register_parameter(kMagnitude, at::empty({out}, master),
                                   /*requires_grad=*/false);
}

at::Tensor DoraAdapter::forward(const at::Tensor& x, const ops::Weight& weight_oi,
                                const at::Tensor& bias_o) {
  const at::Tensor gain = gain_o(magnitude_o, dora_norm_o(weight_oi, a_ri, b_or, scale_));
  const ops::DropoutMask mask = ops::dropout_mask(dropout_, current_module_path());
  if (mask.threshold == 0) {
    const at::Tensor z = ops::linear(x, weight_oi, {}, ops::LowRank{a_ri, b_or, scale_, {}});
    const at::Tensor y = z * gain;
    return (bias_o.defined() ? y + bias_o : y).to(z.scalar_type());
  }
  const at::Tensor plain = ops::linear(x, weight_oi, bias_o);
  const at::Tensor dropped = DropoutFunction::apply(
      x.to(ops::op_dtype(ops::Op::kLinear, x.scalar_type())).contiguous(), &mask);
  const at::Tensor update =
      ops::linear(ops::linear(dropped, ops::Weight(a_ri), {}), ops::Weight(b_or), {});
  return (plain + (gain - 1) * ops::linear(dropped, weight_oi, {}) + gain * scale_ * update)
      .to(plain.scalar_type());
}

at::Tensor DoraAdapter::merged_oi(const at::Tensor& weight_oi) const {
  return dora_merged_oi(weight_oi, a_ri, b_or, magnitude_o, scale_);
}

at::Tensor dora_norm_o(const ops::Weight& weight_oi, const at::Tensor& a_ri, const at::Tensor& b_or,
                       double scale) {
  const at::NoGradGuard no_grad;
  return at::linalg_vector_norm(directions_oi(weight_oi, a_ri, b_or, scale), 2, {1});
}

at::Tensor dora_merged_oi(const at::Tensor& weight_oi, const at::Tensor& a_ri,
                          const at::Tensor& b_or, const at::Tensor& magnitude_o, double scale) {
  const at::NoGradGuard no_grad;
  const at::Tensor directions = directions_oi(weight_oi, a_ri, b_or, scale);
  return directions * gain_o(magnitude_o, at::linalg_vector_norm(directions, 2, {1})).unsqueeze(1);
}

}  // namespace lft::lora
