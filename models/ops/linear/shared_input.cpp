#include "models/ops/linear/shared_input.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "models/ops/core/dispatch.h"
#include "models/ops/core/gemm.h"

namespace lft::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// An alias of x as rows, which autograd does not treat as a view of x.
at::Tensor alias_rows(const at::Tensor& x) {
  const at::AutoDispatchBelowADInplaceOrView plain;
  return x.view({-1, x.size(-1)});
}

/// The masters concatenated by rows, in `dtype`: a view if their stored copies are adjacent in
/// memory, else a copy.
at::Tensor stack_rows(const SharedPass& pass, at::TensorList a_ri, at::ScalarType dtype) {
  variable_list kept;
  for (const ShadowPtr& shadow : pass.shadows)
    kept.push_back(shadow ? shadow->kept(dtype) : at::Tensor());
  if (const at::Tensor view = stacked_view(kept); view.defined()) return view;
  if (a_ri.size() == 1) return a_ri[0].to(dtype);
  at::Tensor stacked = at::empty({pass.ranks, a_ri[0].size(1)}, a_ri[0].options().dtype(dtype));
  int64_t first = 0;
  for (const at::Tensor& a : a_ri) {
    stacked.narrow(0, first, a.size(0)).copy_(a);
    first += a.size(0);
  }
  return stacked;
}

/// Further arguments for preparing an input, apart from x and the A's; valid during the call.
struct PreparedCall {
  const c10::intrusive_ptr<SharedPass>& pass;
  const at::Tensor &kept, &norm_weight;  // the values that x can be recomputed from
  bool grad_mode;
  at::Tensor& h_tr;  // set to x A^T of all layers, if any has an A
};

struct SharedInputFunction : torch::autograd::Function<SharedInputFunction> {
  /// Returns x [t, i] once per layer.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList a_ri,
                               const PreparedCall& call) {
    const c10::intrusive_ptr<SharedPass>& pass = call.pass;
    variable_list rows;
    for (size_t layer = 0; layer < pass->rank.size(); ++layer) rows.push_back(alias_rows(x));
    if (!a_ri.empty()) call.h_tr = product(rows[0], stack_rows(*pass, a_ri, x.scalar_type()).t());
    if (!call.grad_mode) return rows;
    bool trains_a = false;
    for (const at::Tensor& a : a_ri) trains_a |= a.requires_grad();
    variable_list saved = {trains_a ? call.kept : at::Tensor(),
                           trains_a ? call.norm_weight : at::Tensor()};
    saved.insert(saved.end(), a_ri.begin(), a_ri.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["pass"] = c10::IValue::make_capsule(pass);
    ctx->set_materialize_grads(false);
    return rows;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto pass =
        c10::static_intrusive_pointer_cast<SharedPass>(ctx->saved_data["pass"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const variable_list a_ri(saved.begin() + 2, saved.end());
    pass->enter();
    gradients.clear();  // frees the gradient of the pass, if any
    at::Tensor dx = pass->take_dx();
    variable_list result(1 + a_ri.size());
    if (const at::Tensor dh = pass->take_dh(); dh.defined()) {
      if (saved[0].defined()) {
        const variable_list da = pass->a_gradients(a_ri, dh, saved[0], saved[1]);
        std::copy(da.begin(), da.end(), result.begin() + 1);
      }
      if (dx.defined()) add_product(dx, dh, stack_rows(*pass, a_ri, dh.scalar_type()));
    }
    pass->forget_input();
    if (dx.defined()) result[0] = dx.view(pass->shape);
    result.resize(result.size() + 1);  // for the call argument
    return result;
  }
};

}  // namespace

void SharedPass::enter() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == task_) return;
  task_ = task;
  dx_ti = dh_tr = input_ti_ = at::Tensor();
  written_.assign(rank.size(), false);
}

at::Tensor SharedPass::columns(int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  if (!dh_tr.defined())
    dh_tr = at::empty({c10::multiply_integers(shape) / shape.back(), ranks}, options);
  written_[at] = true;
  return dh_tr.narrow(1, first[at], rank[at]);
}

void SharedPass::check_version() const {
  TORCH_CHECK(!version.enabled() || version.current_version() == expected_version,
              "one of the variables needed for gradient computation has been modified by an "
              "inplace operation: [",
              at::empty({0}, options).toString(), " ", at::IntArrayRef(shape), "] is at version ",
              version.current_version(), "; expected version ", expected_version, " instead.");
}

at::Tensor SharedPass::input(const at::Tensor& kept, const at::Tensor& norm_weight) {
  if (!rebuilds) return kept;
  check_version();
  if (!input_ti_.defined())
    input_ti_ = rms_norm_again(kept, norm_weight, eps, options.dtype().toScalarType())
                    .view({-1, shape.back()});
  return input_ti_;
}

variable_list SharedPass::a_gradients(at::TensorList a_ri, const at::Tensor& dh_tr,
                                      const at::Tensor& kept, const at::Tensor& norm_weight) {
  const bool splits = rebuilds && rstd.defined() && !input_ti_.defined() &&
                      runs_kernels(dh_tr.device()) && dh_tr.scalar_type() == at::kBFloat16 &&
                      kept.scalar_type() == at::kBFloat16;
  if (!splits) return master_gradients(a_ri, dh_tr.t(), input(kept, norm_weight), direct);
  check_version();
  const at::Tensor scaled_tr = (dh_tr * rstd.view({-1, 1})).to(at::kBFloat16);
  return master_gradients(a_ri, scaled_tr.t(), kept.view({-1, shape.back()}), direct, norm_weight);
}

at::Tensor SharedPass::take_dh() {
  for (size_t layer = 0; dh_tr.defined() && layer < rank.size(); ++layer) {
    if (rank[layer] > 0 && !written_[layer]) dh_tr.narrow(1, first[layer], rank[layer]).zero_();
  }
  return std::exchange(dh_tr, at::Tensor());
}

at::Tensor SharedPass::take_dx() { return std::exchange(dx_ti, at::Tensor()); }

void SharedPass::forget_input() { input_ti_ = at::Tensor(); }

SharedInput::SharedInput(Normed x, std::vector<LowRank> updates)
    : x_(std::move(x)), updates_(std::move(updates)) {}

void SharedInput::prepare() {
  const at::Tensor x = x_.y.contiguous();
  pass_ = c10::make_intrusive<SharedPass>();
  pass_->shape = x.sizes().vec();
  pass_->options = x.options();
  pass_->trains_x = x.requires_grad();
  pass_->rebuilds = x_.can_be_rebuilt();
  pass_->eps = x_.eps;
  pass_->rstd = x_.rstd;
  if (pass_->rebuilds && !x.is_inference()) {
    pass_->version = x.unsafeGetTensorImpl()->version_counter();
    pass_->expected_version = pass_->version.current_version();
  }
  pass_->direct = direct_gradients();
  variable_list shared;
  for (const LowRank& update : updates_) {
    const at::Tensor& a = update.a_ri;
    const bool fits = a.defined() && a.dim() == 2 &&
                      a.size(1) == x.size(-1);  // otherwise the layer reports the error
    pass_->first.push_back(pass_->ranks);
    pass_->rank.push_back(fits ? a.size(0) : 0);
    pass_->ranks += pass_->rank.back();
    if (!fits) continue;
    shared.push_back(a);
    pass_->shadows.push_back(update.a_shadow);
  }
  kept_ = pass_->rebuilds ? x_.sum.detach() : alias_rows(x.detach());
  x_ti_ = SharedInputFunction::apply(
      x, at::TensorList(shared),
      PreparedCall{pass_, kept_, x_.weight, at::GradMode::is_enabled(), h_tr_});
}

at::Tensor SharedInput::linear(int64_t layer, const Weight& weight_oi, const at::Tensor& bias_o,
                               const LowRank& update) {
  if (!pass_) prepare();
  const auto at = static_cast<size_t>(layer);
  SharedLayer shared{pass_, layer, kept_, x_.weight, {}};
  if (pass_->rank[at] > 0) shared.h_tr = h_tr_.narrow(1, pass_->first[at], pass_->rank[at]);
  return lft::ops::linear(x_ti_[at], shared, weight_oi, bias_o, update);
}

}  // namespace lft::ops
