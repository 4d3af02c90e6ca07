#include "models/ops/linear/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "models/base/dims.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/gemm.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/activation.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/linear/low_rank.h"
#include "models/ops/linear/shared_input.h"

namespace lft::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// The operands of the products: a layer's input as rows in their dtype, and the input after
/// dropout, if already computed.
struct Input {
  at::Tensor x_ti, dropped_ti;
  bool defined() const { return x_ti.defined() || dropped_ti.defined(); }
  at::Tensor dropped(const DropoutMask& mask) const {
    if (dropped_ti.defined()) return dropped_ti;
    return dropout(x_ti, mask);
  }
};

/// The two factors of an input that is a gated product.
struct Factors {
  const at::Tensor &gate, &up;
  Gate kind;
};

/// act(gate) * up. A mask is applied in the same pass, and x_ti is then omitted unless `whole`.
Input gated_input(const Factors& of, at::ScalarType dtype, const DropoutMask& mask, bool whole) {
  if (mask.threshold == 0 || of.gate.scalar_type() != dtype)
    return {rows_of(gated_values(of.gate, of.up, of.kind).to(dtype)), {}};
  const DroppedGated both = gated_dropout(of.gate, of.up, mask, whole, of.kind);
  return {whole ? rows_of(both.y) : at::Tensor(), rows_of(both.dropped)};
}

/// Whether the low-rank product is written first and the wide product accumulates onto it: on a GPU
/// that costs nothing, while adding the low-rank product to the wide one reads and writes the
/// output once more. For BF16, in which B includes the whole scale.
bool low_rank_first(const at::Tensor& x, const Weight& weight) {
  return runs_kernels(x.device()) && x.scalar_type() == at::kBFloat16 &&
         weight.kind() != BaseStorage::kFp8;
}

/// x W^T + b + scale h B^T, with h = dropout(x) A^T unless it is given.
at::Tensor forward_values(const Input& input, const Weight& weight, const at::Tensor& bias,
                          const LowRank& update, at::Tensor* h_tr) {
  const at::ScalarType dtype = input.x_ti.scalar_type();
  if (!update.a_ri.defined()) return weight_product(input.x_ti, weight, bias);
  if (!h_tr->defined()) *h_tr = product(input.dropped(update.mask), low_a(update, dtype).t());
  const at::Tensor b_ro = low_b(update, dtype).t();
  if (low_rank_first(input.x_ti, weight)) {
    at::Tensor y = bias.defined() ? affine(bias.to(dtype), *h_tr, b_ro) : product(*h_tr, b_ro);
    add_product(y, input.x_ti, weight.to(dtype).t());
    return y;
  }
  at::Tensor y = weight_product(input.x_ti, weight, bias);
  add_product(y, *h_tr, b_ro, scale_left(update, dtype));
  return y;
}

struct Operands {
  const Weight& weight;
  const at::Tensor& bias;
  const LowRank& update;
  Gate kind = Gate::kSilu;
};

/// State for the backward pass in addition to saved tensors.
struct KeptOfLinear : torch::CustomClassHolder {
  c10::intrusive_ptr<CodedWeight> coded;     // a quantized weight
  c10::intrusive_ptr<SharedPass> shared;     // an input shared by several layers
  int64_t layer = 0;                         // index among these layers
  LowRank update;                            // without A and B
  std::vector<int64_t> shape;                // shape of x
  at::ScalarType dtype, x_dtype;             // dtype of the products; dtype of x
  std::optional<at::ScalarType> bias_dtype;  // dtype of a trained bias
  bool trains_x = false, direct = false;
  Gate kind = Gate::kSilu;  // for an input that is a gated product
};

/// Arguments of a layer that are not tensors; valid during the call.
struct LinearCall {
  const Weight& weight;
  const LowRank& update;
  const SharedLayer* shared;  // null: the input is not shared
  Gate kind;
  bool grad_mode;
};

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  using Optional = std::optional<at::Tensor>;  // autograd rejects undefined tensors among a
                                               // function's plain inputs

  // Without `up` the input is x. Otherwise it is act(x) * up.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Optional& up_input,
                            const Optional& dense_input, const Optional& bias_input,
                            const Optional& a_input, const Optional& b_input,
                            const LinearCall& call) {
    const Weight& weight = call.weight;
    const SharedLayer* const shared = call.shared;
    const at::Tensor up = up_input.value_or(at::Tensor()), bias = bias_input.value_or(at::Tensor());
    const at::Tensor a = a_input.value_or(at::Tensor()), b = b_input.value_or(at::Tensor());
    const at::ScalarType dtype = op_dtype(Op::kLinear, x.scalar_type());
    Input input;
    if (up.defined())
      input = gated_input({x, up, call.kind}, dtype, call.update.mask, /*whole=*/true);
    if (!up.defined()) input.x_ti = rows_of(x.to(dtype));
    at::Tensor h = shared != nullptr ? shared->h_tr : at::Tensor();
    const at::Tensor y = forward_values(input, weight, bias, call.update, &h);
    std::vector<int64_t> shape = shared != nullptr ? shared->pass->shape : x.sizes().vec();
    shape.back() = weight.out();
    if (!call.grad_mode) return at::_unsafe_view(y, shape);
    const auto trains = [](const at::Tensor& tensor) {
      return tensor.defined() && tensor.requires_grad();
    };
    const bool own_product = shared == nullptr || !shared->h_tr.defined(),
               keeps_input = weight.trains() || (own_product && trains(a));
    at::Tensor kept = up.defined()        ? x
                      : !keeps_input      ? at::Tensor()
                      : shared != nullptr ? shared->kept
                                          : input.x_ti;
    const at::Tensor norm_weight =
        keeps_input && shared != nullptr ? shared->norm_weight : at::Tensor();
    ctx->save_for_backward({kept, up, weight.dense(), a, b, h, norm_weight});
    const auto info = c10::make_intrusive<KeptOfLinear>();
    info->coded = weight.coded();
    if (shared != nullptr) info->shared = shared->pass, info->layer = shared->number;
    info->update = call.update;
    info->update.a_ri = info->update.b_or = at::Tensor();
    info->shape = x.sizes().vec();
    info->dtype = dtype;
    info->x_dtype = x.scalar_type();
    if (trains(bias)) info->bias_dtype = bias.scalar_type();
    info->trains_x = shared != nullptr ? shared->pass->trains_x : trains(x) || trains(up);
    info->direct = direct_gradients();
    info->kind = call.kind;
    ctx->saved_data["kept"] = c10::IValue::make_capsule(info);
    return at::_unsafe_view(y, shape);
  }

  /// Gradients of A and B in float32; undefined if they were added to .grad(). dh: scale * dy B,
  /// for the gradient of the input.
  struct UpdateGradients {
    at::Tensor da, db, dh_tr;
  };
  /// dh is written to `columns` if given, and then the gradient of A is omitted. FP16 rounds scale
  /// * dy first, as under autocast: a gradient overflows where torch's does, and the loss scaler
  /// detects it.
  static UpdateGradients update_gradients(const LowRank& update, const at::Tensor& dy_to,
                                          const Input& input, const at::Tensor& h_tr,
                                          const at::Tensor& columns, bool direct) {
    UpdateGradients result;
    const at::ScalarType dtype = dy_to.scalar_type();
    const bool scaled_first = dtype == at::kHalf;
    const at::Tensor d_to = scaled_first ? dy_to * update.scale : dy_to;
    at::Tensor& dh_tr = result.dh_tr;
    dh_tr = columns.defined() ? columns
                              : at::empty({d_to.size(0), update.b_or.size(1)}, d_to.options());
    product_into(dh_tr, d_to, low_b(update, dtype));
    if (dtype == at::kFloat) dh_tr.mul_(update.scale);
    if (update.a_ri.requires_grad() && input.defined()) {
      result.da = master_gradient(update.a_ri, dh_tr.t(), input.dropped(update.mask), 1, direct);
    }
    if (update.b_or.requires_grad())
      result.db =
          master_gradient(update.b_or, d_to.t(), h_tr, scaled_first ? 1 : update.scale, direct);
    return result;
  }

  /// dx += dropout(dh A), the contribution of the update.
  static void add_update(at::Tensor& dx, const LowRank& update, const at::Tensor& dh_tr) {
    const at::Tensor a = low_a(update, dh_tr.scalar_type());
    if (dx.scalar_type() != dh_tr.scalar_type() || update.mask.threshold != 0) {
      const at::Tensor share = product(dh_tr, a).to(dx.scalar_type());
      if (update.mask.threshold != 0) {
        add_dropout(dx, share, update.mask);
      } else {
        dx.add_(share);
      }
    } else {
      add_product(dx, dh_tr, a);
    }
  }

  /// dy W, plus the contribution of the update if dh is defined. Under FP16 the two are added in
  /// the input's dtype, as autograd does under autocast.
  static at::Tensor input_gradient(const LowRank& update, const at::Tensor& dy_to,
                                   const at::Tensor& dh_tr, const Weight& weight,
                                   at::ScalarType x_dtype) {
    if (dh_tr.defined() && low_rank_first(dy_to, weight) && update.mask.threshold == 0) {
      at::Tensor dx = product(dh_tr, low_a(update, dy_to.scalar_type()));
      add_product(dx, dy_to, weight.to(dy_to.scalar_type()));
      return dx;
    }
    at::Tensor dx = weight_product_backward(dy_to, weight);
    if (!dh_tr.defined()) return dx;
    if (dy_to.scalar_type() == at::kHalf && x_dtype == at::kFloat) dx = dx.to(at::kFloat);
    add_update(dx, update, dh_tr);
    return dx;
  }

  /// The same, added to the gradient from other layers with the same input.
  static at::Tensor shared_input_gradient(SharedPass& shared, const LowRank& update,
                                          const at::Tensor& dy_to, const at::Tensor& dh_tr,
                                          const Weight& weight) {
    at::Tensor& dx = shared.dx_ti;
    if (!dx.defined())
      return dx = input_gradient(update, dy_to, dh_tr, weight, dy_to.scalar_type());
    if (weight.kind() == BaseStorage::kFp8 &&
        dy_to.scalar_type() != at::kFloat) {  // separate products
      dx.add_(weight_product_backward(dy_to, weight));
    } else {
      add_product(dx, dy_to, weight.to(dy_to.scalar_type()));
    }
    if (dh_tr.defined()) add_update(dx, update, dh_tr);
    return dx;
  }

  /// Under FP16 the sum is rounded to FP16 first, like the cast of a bias under autocast.
  static at::Tensor bias_gradient(const at::Tensor& dy_to, at::ScalarType bias_dtype) {
    const at::Tensor sum = at::sum(dy_to, 0, /*keepdim=*/false, at::kFloat);
    return (dy_to.scalar_type() == at::kHalf ? sum.to(at::kHalf) : sum).to(bias_dtype);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &kept = saved[0], &up = saved[1], &dense = saved[2], &a = saved[3];
    const auto info =
        c10::static_intrusive_pointer_cast<KeptOfLinear>(ctx->saved_data["kept"].toCapsule());
    const Weight weight = dense.defined() ? Weight(dense) : Weight(info->coded);
    LowRank update = info->update;
    update.a_ri = a, update.b_or = saved[4];
    const at::ScalarType dtype = info->dtype;
    const at::Tensor dy = rows_of(gradients[0]).to(dtype);
    const c10::intrusive_ptr<SharedPass>& shared = info->shared;
    if (shared) shared->enter();
    const bool joins = shared && ctx->needs_input_grad(0);  // else the collected gradient is unused
    const bool own_product = !shared || shared->rank[static_cast<size_t>(info->layer)] == 0;
    const bool wants_input = weight.trains() || (own_product && a.defined() && a.requires_grad());
    // On a GPU the kernel for the gradients of gate and up also computes their product.
    const bool product_comes_later = wants_input && up.defined() && !weight.trains() && !shared &&
                                     info->trains_x && update.mask.threshold == 0 &&
                                     runs_kernels(dy.device()) && kept.scalar_type() == dtype;
    Input input;
    if (wants_input && up.defined() && !product_comes_later)
      input = gated_input({kept, up, info->kind}, dtype, update.mask, weight.trains());
    if (wants_input && !up.defined()) input.x_ti = shared ? shared->input(kept, saved[6]) : kept;

    at::Tensor dx, dup, dw, dbias;
    UpdateGradients low;
    if (a.defined()) {
      const at::Tensor columns =
          joins && !own_product ? shared->columns(info->layer) : at::Tensor();
      low = update_gradients(update, dy, own_product ? input : Input(), saved[5], columns,
                             info->direct);
      if (!own_product) low.dh_tr.reset();
    }
    if (weight.trains()) dw = product(dy.t(), input.x_ti).to(dense.scalar_type());
    input = {};
    if (info->bias_dtype) dbias = bias_gradient(dy, *info->bias_dtype);
    if (shared) {
      if (joins && shared->trains_x)
        dx = shared_input_gradient(*shared, update, dy, low.dh_tr, weight);
    } else if (info->trains_x) {
      dx = input_gradient(update, dy, low.dh_tr, weight, info->x_dtype).view(info->shape);
      if (up.defined()) {
        const GatedGradients of = gated_gradients(dx, kept, up, info->kind, product_comes_later);
        dx = of.gate, dup = of.up;
        if (product_comes_later)
          low.da =
              master_gradient(update.a_ri, low.dh_tr.t(), rows_of(of.product), 1, info->direct);
      } else {
        dx = dx.to(info->x_dtype);
      }
    }
    return {dx, dup, dw, dbias, low.da, low.db, at::Tensor()};
  }
};

void check_dims(const at::Tensor& x, const Weight& weight, const at::Tensor& bias,
                const LowRank& update) {
  if (!weight.coded()) expect_dims(weight.dense(), "weight", {{"o"}, {"i"}});
  expect_last_dim(x, "x", {"i", weight.in()});
  if (bias.defined()) expect_dims(bias, "bias", {{"o", weight.out()}});
  if (!update.a_ri.defined()) return;
  expect_dims(update.a_ri, "lora_A", {{"r"}, {"i", weight.in()}});
  expect_dims(update.b_or, "lora_B", {{"o", weight.out()}, {"r", update.a_ri.size(0)}});
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::make_optional(tensor) : std::nullopt;
}

at::Tensor apply(const at::Tensor& x, const at::Tensor& up, const Operands& with,
                 const SharedLayer* shared) {
  const auto& [weight, bias, update, kind] = with;
  check_dims(x, weight, bias, update);
  return LinearFunction::apply(
      x, optional(up), optional(weight.dense()), optional(bias), optional(update.a_ri),
      optional(update.b_or), LinearCall{weight, update, shared, kind, at::GradMode::is_enabled()});
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const Weight& weight_oi, const at::Tensor& bias_o,
                  const LowRank& update) {
  return apply(x, {}, {weight_oi, bias_o, update}, nullptr);
}

at::Tensor linear_gated(const at::Tensor& gate, const at::Tensor& up, const Weight& weight_oi,
                        const at::Tensor& bias_o, const LowRank& update, Gate kind) {
  return apply(gate.contiguous(), up.contiguous(), {weight_oi, bias_o, update, kind}, nullptr);
}

at::Tensor linear(const at::Tensor& x_ti, const SharedLayer& shared, const Weight& weight_oi,
                  const at::Tensor& bias_o, const LowRank& update) {
  return apply(x_ti, {}, {weight_oi, bias_o, update}, &shared);
}

}  // namespace lft::ops
