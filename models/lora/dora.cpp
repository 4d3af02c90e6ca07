#include "models/lora/dora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <optional>

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

/// y = z g (+ b) for each row, rounded once to z's dtype. The product z is saved for the gradient
/// of g.
struct GainFunction : torch::autograd::Function<GainFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& z, const at::Tensor& gain_o,
                            const std::optional<at::Tensor>& bias_o) {
    ctx->save_for_backward({z, gain_o});
    ctx->saved_data["bias"] = bias_o && bias_o->requires_grad();
    at::Tensor y = at::empty_like(z);
    return bias_o ? at::addcmul_out(y, *bias_o, z, gain_o) : at::mul_out(y, z, gain_o);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &dy = grads[0], &z = saved[0], &gain_o = saved[1];
    at::Tensor dz, dgain_o, dbias_o;
    if (ctx->needs_input_grad(0)) {
      dz = at::empty_like(z);
      at::mul_out(dz, dy, gain_o);
    }
    if (ctx->needs_input_grad(1)) {
      const at::Tensor products = dy.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).mul_(z);
      dgain_o = products.reshape({-1, z.size(-1)}).sum(0);
    }
    if (ctx->saved_data["bias"].toBool()) dbias_o = dy.reshape({-1, dy.size(-1)}).sum(0);
    return {dz, dgain_o, dbias_o};
  }
};

/// Rows of a weight that are widened to float32 at a time: as many as a processor's cache has room
/// for, or on a GPU few products of a useful size.
int64_t rows_at_once(int64_t in, bool gpu) {
  return std::max<int64_t>(1, (gpu ? 1 << 25 : 1 << 19) / std::max<int64_t>(1, in));
}

/// W + scale B A in float32, as a new tensor.
at::Tensor directions_oi(const at::Tensor& weight_oi, const at::Tensor& a_ri,
                         const at::Tensor& b_or, double scale) {
  at::Tensor weight = weight_oi.to(at::kFloat);
  return weight.is_same(weight_oi) ? at::addmm(weight, b_or, a_ri, 1, scale)
                                   : weight.addmm_(b_or, a_ri, 1, scale);
}

/// ||W + scale B A|| of each row, in norm_o.
void write_norms(const at::Tensor& norm_o, const ops::Weight& weight_oi, const at::Tensor& a_ri,
                 const at::Tensor& b_or, double scale) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = weight_oi.coded() ? weight_oi.to(at::kFloat) : weight_oi.dense();
  const int64_t out = weight.size(0), step = rows_at_once(weight.size(1), !weight.is_cpu());
  for (int64_t first = 0; first < out; first += step) {
    const int64_t count = std::min(step, out - first);
    at::Tensor some_o = norm_o.narrow(0, first, count);
    at::linalg_vector_norm_out(
        some_o,
        directions_oi(weight.narrow(0, first, count), a_ri, b_or.narrow(0, first, count), scale), 2,
        {1});
  }
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

double widened_by_dora(double in, double out, bool gpu) {
  return in * std::min(out, static_cast<double>(rows_at_once(static_cast<int64_t>(in), gpu)));
}

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
          .memory = {.low_rank_only = false,
                     .keeps_lengths = true,
                     .widened = widened_by_dora,
                     .kept = kept_by_dora}};
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
  norm_o_ = at::empty({out}, master);
}

const at::Tensor& DoraAdapter::norm_o(const ops::Weight& weight_oi) {
  std::vector<std::pair<const void*, int64_t>> now = {{weight_oi.coded().get(), 0}};
  std::vector<at::Tensor> sources = {a_ri, b_or};
  if (!weight_oi.coded()) sources.push_back(weight_oi.dense());
  for (const at::Tensor& source : sources) {
    now.emplace_back(source.unsafeGetTensorImpl(), source._version());
    now.emplace_back(source.const_data_ptr(), 0);
  }
  if (now != normed_) {
    normed_.clear();
    write_norms(norm_o_, weight_oi, a_ri, b_or, scale_);
    normed_ = std::move(now);
  }
  return norm_o_;
}

at::Tensor DoraAdapter::forward(const at::Tensor& x, const ops::Weight& weight_oi,
                                const at::Tensor& bias_o) {
  const at::Tensor gain = gain_o(magnitude_o, norm_o(weight_oi));
  const ops::DropoutMask mask = ops::dropout_mask(dropout_, current_module_path());
  if (mask.threshold == 0) {
    const at::Tensor z = ops::linear(x, weight_oi, {}, ops::LowRank{a_ri, b_or, scale_, {}});
    return GainFunction::apply(z, gain, bias_o.defined() ? std::optional(bias_o) : std::nullopt);
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
  at::Tensor norm_o = at::empty({weight_oi.out()}, b_or.options());
  write_norms(norm_o, weight_oi, a_ri, b_or, scale);
  return norm_o;
}

at::Tensor dora_merged_oi(const at::Tensor& weight_oi, const at::Tensor& a_ri,
                          const at::Tensor& b_or, const at::Tensor& magnitude_o, double scale) {
  const at::NoGradGuard no_grad;
  const at::Tensor directions = directions_oi(weight_oi, a_ri, b_or, scale);
  return directions * gain_o(magnitude_o, at::linalg_vector_norm(directions, 2, {1})).unsqueeze(1);
}

}  // namespace lft::lora
