#include "models/ops/experts/expert_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "models/base/dims.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/few_rows.h"
#include "models/ops/core/gemm.h"
#include "models/ops/core/precision.h"
#include "models/ops/linear/low_rank.h"
#include "models/ops/weight/expert_weight.h"

namespace lft::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Optional = std::optional<at::Tensor>;

/// Weight and factors of all experts in the dtype of products.
class ExpertFactors {
 public:
  ExpertFactors(const Weight& weight, const LowRank& update, int64_t experts, at::ScalarType dtype)
      : weight_(weight), update_(update), experts_(experts) {
    if (!update.a_ri.defined()) return;
    a_ = low_a(update, dtype).detach();
    b_ = low_b(update, dtype).detach();
    scale_ = scale_left(update, dtype);
  }
  bool low_rank() const { return a_.defined(); }
  int64_t rank() const { return b_.size(1); }
  int64_t out() const { return weight_.out() / experts_; }
  at::Tensor a(int64_t e) const { return expert_rows(a_, e, experts_); }
  at::Tensor b(int64_t e) const { return expert_rows(b_, e, experts_); }

  /// y = x W_e^T + scale h B_e^T with h = x A_e^T.
  void forward(int64_t e, const at::Tensor& x_ni, at::Tensor h_nq, at::Tensor y_no) const {
    const Weight weight = expert_weight(weight_, e, experts_);
    if (weight.coded() || takes_few_rows(x_ni)) {
      y_no.copy_(weight_product(x_ni, weight, {}));
    } else {
      product_into(y_no, x_ni, weight.to(x_ni.scalar_type()).t());
    }
    if (!low_rank()) return;
    h_nq.copy_(product(x_ni, a(e).t()));
    add_product(y_no, h_nq, b(e).t(), scale_);
  }

  /// The gradient of x for that of y. FP16 rounds scale * dy first, as linear() does.
  at::Tensor input_gradient(int64_t e, const at::Tensor& dy_no, const at::Tensor& dh_nq) const {
    at::Tensor dx = weight_product_backward(dy_no, expert_weight(weight_, e, experts_));
    if (dh_nq.defined()) add_product(dx, dh_nq, a(e));
    return dx;
  }
  /// scale * dy B_e.
  at::Tensor low_gradient(int64_t e, const at::Tensor& dy_no) const {
    if (!low_rank()) return {};
    const bool first = dy_no.scalar_type() == at::kHalf;
    at::Tensor dh = product(first ? dy_no * update_.scale : dy_no, b(e));
    return first || scale_ == 1 ? dh : dh.mul_(update_.scale);
  }

 private:
  const Weight& weight_;
  const LowRank& update_;
  const int64_t experts_;
  at::Tensor a_, b_;
  double scale_ = 1;
};

/// The gradient of a factor of all experts, to which each expert adds its part.
class FactorGradient {
 public:
  FactorGradient(const at::Tensor& factor, bool direct) {
    if (!factor.defined() || !factor.requires_grad()) return;
    direct_ = direct && factor.grad().defined();
    sum_ = direct_ ? factor.grad() : at::zeros(factor.sizes(), factor.options());
  }
  void add(int64_t e, int64_t experts, const at::Tensor& a_mk, const at::Tensor& b_kn,
           double scale) const {
    if (!sum_.defined()) return;
    expert_rows(sum_, e, experts).add_(product(a_mk, b_kn), scale);
  }
  /// Undefined if it was added to .grad().
  at::Tensor result() const { return direct_ ? at::Tensor() : sum_; }

 private:
  bool direct_ = false;
  at::Tensor sum_;
};

struct KeptOfExperts : torch::CustomClassHolder {
  ExpertRowsPtr rows;
  c10::intrusive_ptr<CodedWeight> coded;
  LowRank update;  // without A and B
  at::ScalarType dtype, x_dtype;
  bool direct = false;
  Gate kind = Gate::kSilu;
};

c10::intrusive_ptr<KeptOfExperts> kept_of(const ExpertRowsPtr& rows, const ExpertLayer& layer,
                                          at::ScalarType dtype, at::ScalarType x_dtype) {
  auto kept = c10::make_intrusive<KeptOfExperts>();
  kept->rows = rows;
  kept->coded = layer.weight.coded();
  kept->update = layer.update;
  kept->update.a_ri = kept->update.b_or = at::Tensor();
  kept->dtype = dtype;
  kept->x_dtype = x_dtype;
  kept->direct = direct_gradients();
  return kept;
}

/// The state of a backward pass: factors from saved tensors, and the gradients of A and B.
struct BackwardPass {
  BackwardPass(const KeptOfExperts& kept, const at::Tensor& dense, const at::Tensor& a,
               const at::Tensor& b)
      : weight(dense.defined() ? Weight(dense) : Weight(kept.coded)),
        update(with(kept.update, a, b)),
        factors(weight, update, kept.rows->experts(), kept.dtype),
        da(a, kept.direct),
        db(b, kept.direct),
        dw(dense, /*direct=*/false) {}
  static LowRank with(LowRank update, const at::Tensor& a, const at::Tensor& b) {
    update.a_ri = a, update.b_or = b;
    return update;
  }
  /// Adds the gradients of the weight and of the factors for that of y, and returns that of x_ni,
  /// undefined unless `reaches_x`.
  at::Tensor step(const ExpertRows& rows, int64_t e, const at::Tensor& x_ni, const at::Tensor& h_nq,
                  const at::Tensor& dy_no, bool reaches_x) const {
    const at::Tensor dh = factors.low_gradient(e, dy_no);
    dw.add(e, rows.experts(), dy_no.t(), x_ni, 1);
    if (dh.defined()) {
      da.add(e, rows.experts(), dh.t(), x_ni, 1);
      const bool first = dy_no.scalar_type() == at::kHalf;
      db.add(e, rows.experts(), (first ? dy_no * update.scale : dy_no).t(), h_nq,
             first ? 1 : update.scale);
    }
    return reaches_x ? factors.input_gradient(e, dy_no, dh) : at::Tensor();
  }

  const Weight weight;
  const LowRank update;
  const ExpertFactors factors;
  const FactorGradient da, db, dw;
};

bool is_trained(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

/// Whether experts run in parallel: products of a few rows already use all threads.
bool in_parallel(const at::Tensor& x) { return x.device().is_cpu() && !takes_few_rows(x); }

at::Tensor some(const at::Tensor& x, int64_t first, int64_t count) {
  return x.defined() ? x.narrow(0, first, count) : x;
}

struct ExpertFunction : torch::autograd::Function<ExpertFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_input, const Optional& dense,
                            const Optional& a, const Optional& b, const ExpertRowsPtr& rows,
                            const ExpertLayer& layer) {
    const at::ScalarType dtype = op_dtype(Op::kLinear, x_input.scalar_type());
    const at::Tensor x = x_input.to(dtype);
    const ExpertFactors factors(layer.weight, layer.update, rows->experts(), dtype);
    const at::Tensor y = at::empty({rows->rows(), factors.out()}, x.options()),
                     h = factors.low_rank() ? at::empty({rows->rows(), factors.rank()}, x.options())
                                            : at::Tensor();
    for_experts(*rows, in_parallel(x), [&](int64_t e, int64_t first, int64_t count) {
      factors.forward(e, x.index_select(0, some(rows->tokens_r, first, count)),
                      some(h, first, count), some(y, first, count));
    });
    const at::Tensor a_ri = a.value_or(at::Tensor()), b_or = b.value_or(at::Tensor());
    const at::Tensor weight = dense.value_or(at::Tensor());
    ctx->save_for_backward(
        {is_trained(a_ri) || is_trained(weight) ? x : at::Tensor(), weight, a_ri, b_or, h});
    ctx->saved_data["kept"] =
        c10::IValue::make_capsule(kept_of(rows, layer, dtype, x_input.scalar_type()));
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const auto kept =
        c10::static_intrusive_pointer_cast<KeptOfExperts>(ctx->saved_data["kept"].toCapsule());
    const ExpertRows& rows = *kept->rows;
    const BackwardPass pass(*kept, saved[1], saved[2], saved[3]);
    const at::Tensor dy = gradients[0].to(kept->dtype).contiguous();
    const bool reaches_x = ctx->needs_input_grad(0);
    const at::Tensor dx =
        reaches_x ? at::empty({rows.rows(), pass.weight.in()}, dy.options()) : at::Tensor();
    for_experts(rows, in_parallel(dy), [&](int64_t e, int64_t first, int64_t count) {
      const at::Tensor x = saved[0].defined()
                               ? saved[0].index_select(0, some(rows.tokens_r, first, count))
                               : at::Tensor();
      const at::Tensor d =
          pass.step(rows, e, x, some(saved[4], first, count), some(dy, first, count), reaches_x);
      if (reaches_x) some(dx, first, count).copy_(d);
    });
    return {reaches_x ? sum_rows(dx, rows).to(kept->x_dtype) : at::Tensor(),
            pass.dw.result(),
            pass.da.result(),
            pass.db.result(),
            at::Tensor(),
            at::Tensor()};
  }
};

/// act(gate) * up of some rows of [r, 2 m].
struct Halves {
  explicit Halves(const at::Tensor& gate_up) {
    const std::vector<at::Tensor> parts = gate_up.chunk(2, 1);
    gate = parts[0].contiguous();
    up = parts[1].contiguous();
  }
  at::Tensor gate, up;
};

struct GatedExpertFunction : torch::autograd::Function<GatedExpertFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up,
                            const at::Tensor& share_tk, const Optional& dense, const Optional& a,
                            const Optional& b, const ExpertRowsPtr& rows, const ExpertLayer& layer,
                            Gate kind) {
    const at::ScalarType dtype = op_dtype(Op::kLinear, gate_up.scalar_type());
    const ExpertFactors factors(layer.weight, layer.update, rows->experts(), dtype);
    const at::TensorOptions options = gate_up.options().dtype(dtype);
    const at::Tensor y = at::empty({rows->rows(), factors.out()}, options),
                     h = factors.low_rank() ? at::empty({rows->rows(), factors.rank()}, options)
                                            : at::Tensor(),
                     share = share_tk.flatten().index_select(0, rows->choices_r).unsqueeze(1);
    for_experts(*rows, in_parallel(y), [&](int64_t e, int64_t first, int64_t count) {
      const Halves halves(some(gate_up, first, count));
      const at::Tensor hidden = gated_values(halves.gate, halves.up, kind).to(dtype);
      factors.forward(e, hidden * some(share, first, count).to(dtype), some(h, first, count),
                      some(y, first, count));
    });
    ctx->save_for_backward({gate_up, share_tk, dense.value_or(at::Tensor()),
                            a.value_or(at::Tensor()), b.value_or(at::Tensor()), h});
    const auto kept = kept_of(rows, layer, dtype, gate_up.scalar_type());
    kept->kind = kind;
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return sum_rows(y, *rows);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const auto kept =
        c10::static_intrusive_pointer_cast<KeptOfExperts>(ctx->saved_data["kept"].toCapsule());
    const ExpertRows& rows = *kept->rows;
    const at::Tensor &gate_up = saved[0], &share_tk = saved[1];
    const BackwardPass pass(*kept, saved[2], saved[3], saved[4]);
    const at::Tensor dy_to = gradients[0].to(kept->dtype).contiguous();
    const at::Tensor share = share_tk.flatten().index_select(0, rows.choices_r).unsqueeze(1);
    at::Tensor d_gate_up = at::empty_like(gate_up), d_share_r = at::empty_like(share);
    for_experts(rows, in_parallel(dy_to), [&](int64_t e, int64_t first, int64_t count) {
      const Halves halves(some(gate_up, first, count));
      const at::Tensor own = some(share, first, count),
                       hidden = gated_values(halves.gate, halves.up, kept->kind),
                       dy = dy_to.index_select(0, some(rows.tokens_r, first, count)),
                       d = pass.step(rows, e, hidden.to(kept->dtype) * own.to(kept->dtype),
                                     some(saved[5], first, count), dy, /*reaches_x=*/true);
      some(d_share_r, first, count)
          .copy_((d.to(at::kFloat) * hidden.to(at::kFloat)).sum(1, /*keepdim=*/true));
      const GatedGradients of = gated_gradients((d * own.to(kept->dtype)).to(gate_up.scalar_type()),
                                                halves.gate, halves.up, kept->kind);
      const int64_t m = of.gate.size(1);
      some(d_gate_up, first, count).narrow(1, 0, m).copy_(of.gate);
      some(d_gate_up, first, count).narrow(1, m, m).copy_(of.up);
    });
    const at::Tensor d_share =
        at::empty_like(share_tk).flatten().index_copy_(0, rows.choices_r, d_share_r.flatten());
    return {d_gate_up,        d_share.view(share_tk.sizes()),
            pass.dw.result(), pass.da.result(),
            pass.db.result(), at::Tensor(),
            at::Tensor(),     at::Tensor()};
  }
};

Optional optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? Optional(tensor) : std::nullopt;
}

void check_layer(const ExpertLayer& layer, int64_t experts, int64_t in) {
  expect_dims(at::empty({layer.weight.out(), layer.weight.in()}, at::kMeta), "weight",
              {{"e*o"}, {"i", in}});
  const LowRank& update = layer.update;
  if (!update.a_ri.defined()) return;
  expect_dims(update.a_ri, "lora_A", {{"e*q"}, {"i", in}});
  expect_dims(update.b_or, "lora_B",
              {{"e*o", layer.weight.out()}, {"q", update.a_ri.size(0) / experts}});
}

}  // namespace

at::Tensor expert_linear(const at::Tensor& x, const ExpertRowsPtr& rows, const ExpertLayer& layer) {
  expect_dims(x, "x", {{"t", rows->rows_tk.size(0)}, {"i"}});
  check_layer(layer, rows->experts(), x.size(1));
  return ExpertFunction::apply(x, optional_of(layer.weight.dense()), optional_of(layer.update.a_ri),
                               optional_of(layer.update.b_or), rows, layer);
}

at::Tensor expert_linear_gated(const at::Tensor& gate_up, const at::Tensor& share_tk,
                               const ExpertRowsPtr& rows, const ExpertLayer& layer, Gate kind) {
  expect_dims(gate_up, "gate_up", {{"r", rows->rows()}, {"2*m"}});
  expect_dims(share_tk, "share", {{"t", rows->rows_tk.size(0)}, {"k", rows->rows_tk.size(1)}});
  check_layer(layer, rows->experts(), gate_up.size(1) / 2);
  return GatedExpertFunction::apply(
      gate_up.contiguous(), share_tk.contiguous(), optional_of(layer.weight.dense()),
      optional_of(layer.update.a_ri), optional_of(layer.update.b_or), rows, layer, kind);
}

}  // namespace lft::ops
