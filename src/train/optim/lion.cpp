#include "src/train/optim/lion.h"

#include <ATen/ATen.h>

#include "models/ops/update/grad_stats.h"

namespace lft::train {
namespace {

class Lion final : public UpdateRule {
 public:
  explicit Lion(const RuleOptions& options) : options_(options) {}

  std::vector<MomentSpec> moments(at::IntArrayRef, bool) const override { return {{"exp_avg"}}; }

  void apply(const std::vector<Update>& updates, const ops::GradVerdict& verdict) const override {
    const at::NoGradGuard no_grad;
    const at::Tensor clip = ops::clip_of(verdict), stays = ops::found_inf(verdict) != 0;
    const double beta1 = options_.betas[0], beta2 = options_.betas[1];
    for (const Update& u : updates) {
      const at::Tensor exp_avg = u.moments[0], grad = u.grad.to(at::kFloat) * clip;
      at::Tensor step = (exp_avg * beta1).add_(grad, 1 - beta1).sign_();
      step = (u.param * (1 - u.lr * (u.decays ? options_.weight_decay : 0))).sub_(step, u.lr);
      u.param.detach().copy_(at::where(stays, u.param, step));
      exp_avg.copy_(at::where(stays, exp_avg, (exp_avg * beta2).add_(grad, 1 - beta2)));
    }
  }

  /// The signs are not stored, only their size is known.
  at::Tensor direction(const Slot& slot) const override {
    return at::ones_like(slot.param.tensor.detach());
  }

  /// The clipped gradient, the step and the selected result.
  double temporary_bytes(at::IntArrayRef sizes) const override {
    return 3 * sizeof(float) * static_cast<double>(c10::multiply_integers(sizes));
  }

 private:
  RuleOptions options_;
};

}  // namespace

RulePtr make_lion(const RuleOptions& options) { return std::make_unique<Lion>(options); }

}  // namespace lft::train
