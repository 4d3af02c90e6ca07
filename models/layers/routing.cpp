#include "models/layers/routing.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "models/ops/core/copy_to_device.h"

namespace lft::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local RoutingPtr current;

struct BalanceFunction : torch::autograd::Function<BalanceFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& probabilities_te,
                            const RoutingPtr& routing) {
    ctx->saved_data["routing"] = c10::IValue::make_capsule(routing);
    return probabilities_te;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto routing =
        c10::static_intrusive_pointer_cast<Routing>(ctx->saved_data["routing"].toCapsule());
    return {routing->with_loss(gradients[0]), at::Tensor()};
  }
};

}  // namespace

void Routing::begin(const std::vector<int64_t>& lengths, int64_t longest, at::Device device) {
  std::vector<at::Tensor> padding;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const int64_t start = static_cast<int64_t>(row) * longest;
    padding.push_back(at::arange(start + lengths[row], start + longest, at::kLong));
  }
  if (padding.empty() || at::cat(padding).numel() == 0) return;
  const at::Tensor places = at::cat(padding);
  const at::Tensor real_t1 =
      at::ones({std::ssize(lengths) * longest, 1}, at::kFloat).index_fill_(0, places, 0);
  padding_n_ = ops::copy_to_device(places, device);
  real_t1_ = ops::copy_to_device(real_t1, device);
}

void Routing::see(const at::Tensor& probabilities_te) {
  if (ended_ || !balances()) return;
  const at::NoGradGuard no_grad;
  const bool pads = real_t1_.defined();
  const at::Tensor sums_e = (pads ? probabilities_te * real_t1_ : probabilities_te).sum(0);
  sums_e_ = sums_e_.defined() ? sums_e_ + sums_e : sums_e;
  rows_ += probabilities_te.size(0) - (pads ? padding_n_.size(0) : 0);
}

void Routing::count(const ops::ExpertRows& rows, const at::Tensor& experts_tk) {
  if (ended_) return;
  const size_t first = tokens_.size();
  for (int64_t expert = 0; expert < rows.experts(); ++expert) tokens_.push_back(rows.of(expert));
  if (!padding_n_.defined() || experts_tk.size(0) < real_t1_.size(0)) return;
  const at::Tensor padding = experts_tk.index_select(0, padding_n_).flatten().cpu();
  const int64_t* const chosen = padding.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < padding.numel(); ++i) --tokens_[first + static_cast<size_t>(chosen[i])];
}

at::Tensor Routing::slope_e() const {
  const int64_t experts = sums_e_.size(0);
  const auto rows = static_cast<double>(rows_);
  return at::tensor(tokens_, at::kLong).view({-1, experts}).sum(0).to(at::kDouble) *
         (static_cast<double>(experts) / (rows * rows));
}

at::Tensor Routing::loss() const {
  return at::dot(ops::copy_to_device(slope_e(), sums_e_.device()), sums_e_.to(at::kDouble));
}

at::Tensor Routing::with_loss(const at::Tensor& gradient_te) const {
  const at::Tensor added_e =
      ops::copy_to_device((weight_ * slope_e()).to(at::kFloat), gradient_te.device());
  return gradient_te + (real_t1_.defined() ? real_t1_ * added_e : added_e);
}

at::Tensor balanced(const at::Tensor& probabilities_te, const RoutingPtr& routing) {
  if (!routing || !routing->balances()) return probabilities_te;
  routing->see(probabilities_te);
  return BalanceFunction::apply(probabilities_te, routing);
}

RoutingGuard::RoutingGuard(RoutingPtr routing)
    : previous_(std::exchange(current, std::move(routing))) {}
RoutingGuard::~RoutingGuard() {
  if (current) current->end();
  current = std::move(previous_);
}
const RoutingPtr& routing() { return current; }

}  // namespace lft::layers
