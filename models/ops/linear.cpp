#include "models/ops/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "models/layers/dims.h"
#include "models/ops/activation.h"
#include "models/ops/dropout.h"
#include "models/ops/gemm.h"
#include "models/ops/precision.h"

namespace lft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor forward_values(const at::Tensor& x_ti, const Weight& weight, const at::Tensor& bias, const LowRank& update, at::Tensor* h_tr) {
  const at::ScalarType dtype = x_ti.scalar_type();
  const at::Tensor w = weight.to(dtype);
  at::Tensor y = bias.defined() ? affine(bias.to(dtype), x_ti, w.t()) : product(x_ti, w.t());
  if (!update.a_ri.defined()) return y;
  *h_tr = product(dropout(x_ti, update.mask), update.a_ri.to(dtype).t());
  add_product(y, *h_tr, update.b_or.to(dtype).t(), update.scale);
  return y;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  using Optional = std::optional<at::Tensor>;  // autograd takes no undefined tensor among a function's plain inputs

  // Without `up` the input is x. Otherwise it is silu(x) * up.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Optional& up_input, const Optional& dense_input,
                            const Optional& bias_input, const Optional& a_input, const Optional& b_input, const Weight* weight_input,
                            const LowRank* update, bool grad_mode) {
    const Weight& weight = *weight_input;
    const at::Tensor up = up_input.value_or(at::Tensor()), bias = bias_input.value_or(at::Tensor());
    const at::Tensor a = a_input.value_or(at::Tensor()), b = b_input.value_or(at::Tensor());
    const at::ScalarType dtype = op_dtype(Op::kLinear, x.scalar_type());
    const at::Tensor input = rows_of(up.defined() ? swiglu_values(x, up).to(dtype) : x.to(dtype));
    at::Tensor h;
    const at::Tensor y = forward_values(input, weight, bias, *update, &h);
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.out();
    if (!grad_mode) return at::_unsafe_view(y, shape);
    const auto trains = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
    const bool keeps_input = weight.trains() || trains(a);
    at::Tensor kept = up.defined() ? x : keeps_input ? input : at::Tensor();
    ctx->save_for_backward({kept, up, weight.dense(), a, b, h});
    if (weight.nf4()) ctx->saved_data["nf4"] = c10::IValue::make_capsule(weight.nf4());
    ctx->saved_data["trains_x"] = trains(x) || trains(up);
    ctx->saved_data["trains_bias"] = trains(bias);
    ctx->saved_data["shape"] = x.sizes().vec();
    ctx->saved_data["dtype"] = static_cast<int64_t>(dtype);
    ctx->saved_data["x_dtype"] = static_cast<int64_t>(x.scalar_type());
    ctx->saved_data["bias_dtype"] = static_cast<int64_t>(bias.defined() ? bias.scalar_type() : at::kFloat);
    ctx->saved_data["scale"] = update->scale;
    ctx->saved_data["seed"] = static_cast<int64_t>(update->mask.seed);
    ctx->saved_data["stream"] = static_cast<int64_t>(update->mask.stream);
    ctx->saved_data["threshold"] = static_cast<int64_t>(update->mask.threshold);
    ctx->saved_data["keep_scale"] = static_cast<double>(update->mask.scale);
    return at::_unsafe_view(y, shape);
  }

  static Weight saved_weight(AutogradContext* ctx, const at::Tensor& dense) {
    if (dense.defined()) return dense;
    return c10::static_intrusive_pointer_cast<Nf4Storage>(ctx->saved_data["nf4"].toCapsule());
  }

  static LowRank saved_update(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b) {
    LowRank update{a, b, ctx->saved_data["scale"].toDouble(), {}};
    update.mask.seed = static_cast<uint64_t>(ctx->saved_data["seed"].toInt());
    update.mask.stream = static_cast<uint64_t>(ctx->saved_data["stream"].toInt());
    update.mask.threshold = static_cast<uint32_t>(ctx->saved_data["threshold"].toInt());
    update.mask.scale = static_cast<float>(ctx->saved_data["keep_scale"].toDouble());
    return update;
  }

  /// Gradients of A and B (float32), and scale * dy B for the input's. FP16 rounds scale * dy first, as autocast does: a gradient overflows
  /// where torch's does, and the loss scaler sees it.
  static at::Tensor update_gradients(const LowRank& update, const at::Tensor& dy_to, const at::Tensor& input_ti, const at::Tensor& h_tr,
                                     at::Tensor* da, at::Tensor* db) {
    const at::ScalarType dtype = dy_to.scalar_type();
    const bool scaled_first = dtype == at::kHalf;
    const at::Tensor d_to = scaled_first ? dy_to * update.scale : dy_to;
    at::Tensor dh_tr = product(d_to, update.b_or.to(dtype));
    if (!scaled_first) dh_tr.mul_(update.scale);
    if (update.a_ri.requires_grad()) *da = product(dh_tr.t(), dropout(input_ti, update.mask)).to(at::kFloat);
    if (update.b_or.requires_grad()) {
      *db = product(d_to.t(), h_tr).to(at::kFloat);
      if (!scaled_first) db->mul_(update.scale);
    }
    return dh_tr;
  }

  /// dy W, and the update's share. Under FP16 the two are added in the input's dtype, as autograd adds them under autocast.
  static at::Tensor input_gradient(const LowRank& update, const at::Tensor& dy_to, const at::Tensor& dh_tr, const Weight& weight,
                                   at::ScalarType x_dtype) {
    const at::ScalarType dtype = dy_to.scalar_type();
    at::Tensor dx = product(dy_to, weight.to(dtype));
    if (!dh_tr.defined()) return dx;
    const at::Tensor a = update.a_ri.to(dtype);
    if (dtype == at::kHalf && x_dtype == at::kFloat) {
      dx = dx.to(at::kFloat);
      const at::Tensor share = product(dh_tr, a).to(at::kFloat);
      if (update.mask.threshold == 0) return dx.add_(share);
      add_dropout(dx, share, update.mask);
    } else if (update.mask.threshold == 0) {
      add_product(dx, dh_tr, a);
    } else {
      add_dropout(dx, product(dh_tr, a), update.mask);
    }
    return dx;
  }

  /// Under FP16 rounded to it first, as the cast of a bias under autocast does.
  static at::Tensor bias_gradient(const at::Tensor& dy_to, at::ScalarType bias_dtype) {
    const at::Tensor sum = at::sum(dy_to, 0, /*keepdim=*/false, at::kFloat);
    return (dy_to.scalar_type() == at::kHalf ? sum.to(at::kHalf) : sum).to(bias_dtype);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &kept = saved[0], &up = saved[1], &dense = saved[2], &a = saved[3];
    const Weight weight = saved_weight(ctx, dense);
    const LowRank update = saved_update(ctx, a, saved[4]);
    const auto dtype = static_cast<at::ScalarType>(ctx->saved_data["dtype"].toInt());
    const at::Tensor dy = rows_of(gradients[0]).to(dtype);
    const bool wants_input = weight.trains() || (a.defined() && a.requires_grad());
    at::Tensor input;
    if (wants_input) input = up.defined() ? rows_of(swiglu_values(kept, up).to(dtype)) : kept;

    at::Tensor dx, dup, dw, dbias, da, db, dh;
    if (a.defined()) dh = update_gradients(update, dy, input, saved[5], &da, &db);
    if (weight.trains()) dw = product(dy.t(), input).to(dense.scalar_type());
    input.reset();
    if (ctx->saved_data["trains_bias"].toBool()) {
      dbias = bias_gradient(dy, static_cast<at::ScalarType>(ctx->saved_data["bias_dtype"].toInt()));
    }
    if (ctx->saved_data["trains_x"].toBool()) {
      const auto x_dtype = static_cast<at::ScalarType>(ctx->saved_data["x_dtype"].toInt());
      dx = input_gradient(update, dy, dh, weight, x_dtype).view(ctx->saved_data["shape"].toIntVector());
      if (up.defined()) {
        std::tie(dx, dup) = swiglu_gradients(dx, kept, up);
      } else {
        dx = dx.to(x_dtype);
      }
    }
    return {dx, dup, dw, dbias, da, db, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void check_dims(const at::Tensor& x, const Weight& weight, const at::Tensor& bias, const LowRank& update) {
  if (!weight.nf4()) expect_dims(weight.dense(), "weight", {{"o"}, {"i"}});
  expect_last_dim(x, "x", {"i", weight.in()});
  if (bias.defined()) expect_dims(bias, "bias", {{"o", weight.out()}});
  if (!update.a_ri.defined()) return;
  expect_dims(update.a_ri, "lora_A", {{"r"}, {"i", weight.in()}});
  expect_dims(update.b_or, "lora_B", {{"o", weight.out()}, {"r", update.a_ri.size(0)}});
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) { return tensor.defined() ? std::make_optional(tensor) : std::nullopt; }

}  // namespace

at::Tensor linear(const at::Tensor& x, const Weight& weight_oi, const at::Tensor& bias_o, const LowRank& update) {
  check_dims(x, weight_oi, bias_o, update);
  return LinearFunction::apply(x, std::optional<at::Tensor>(), optional(weight_oi.dense()), optional(bias_o), optional(update.a_ri),
                               optional(update.b_or), &weight_oi, &update, at::GradMode::is_enabled());
}

at::Tensor linear_swiglu(const at::Tensor& gate, const at::Tensor& up, const Weight& weight_oi, const at::Tensor& bias_o,
                         const LowRank& update) {
  check_dims(gate, weight_oi, bias_o, update);
  return LinearFunction::apply(gate.contiguous(), optional(up.contiguous()), optional(weight_oi.dense()), optional(bias_o),
                               optional(update.a_ri), optional(update.b_or), &weight_oi, &update, at::GradMode::is_enabled());
}

}  // namespace lft
