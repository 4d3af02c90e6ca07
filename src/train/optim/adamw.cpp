#include "src/train/optim/adamw.h"

#include <ATen/Functions.h>

#include <cmath>

#include "models/ops/update/adamw8.h"

namespace lft::train {
namespace {

class AdamW final : public AdamRule {
 public:
  using AdamRule::AdamRule;
  std::vector<MomentSpec> moments(at::IntArrayRef, bool) const override {
    return {{"exp_avg"}, {"exp_avg_sq"}};
  }
  void apply(const std::vector<Update>& updates, const ops::GradVerdict& verdict) const override {
    apply_wide(updates, verdict);
  }
};

}  // namespace

RulePtr make_adamw(const RuleOptions& options) { return std::make_unique<AdamW>(options); }

ops::AdamWOptions AdamRule::op_options(bool decays) const {
  return {.betas = options_.betas,
          .eps = options_.eps,
          .weight_decay = decays ? options_.weight_decay : 0};
}

void AdamRule::apply_wide(const std::vector<Update>& updates,
                          const ops::GradVerdict& verdict) const {
  for (const bool decays : {true, false}) {
    std::vector<ops::AdamWTensor> tensors;
    for (const Update& u : updates) {
      if (u.decays == decays)
        tensors.push_back({u.param, u.grad, u.moments[0], u.moments[1], u.lr, u.t, u.copy});
    }
    if (!tensors.empty() || (decays && updates.empty()))
      ops::adamw_(tensors, op_options(decays), verdict);
  }
}

at::Tensor AdamRule::direction(const Slot& slot) const {
  const auto t = static_cast<double>(slot.steps);
  const AdamMoments kept = adam_moments(slot);
  const at::Tensor mean = kept.exp_avg / (1 - std::pow(options_.betas[0], t));
  const at::Tensor root = (kept.exp_avg_sq / (1 - std::pow(options_.betas[1], t))).sqrt();
  return mean / (root + options_.eps);
}

AdamMoments adam_moments(const Slot& slot) {
  const at::Device device = slot.param.tensor.device();
  const at::Tensor first = slot.moment("exp_avg"), second = slot.moment("exp_avg_sq"),
                   first_absmax = slot.moment("exp_avg_absmax");
  if (!second.defined()) return {};
  if (!first_absmax.defined()) return {first.to(device), second.to(device)};
  return {
      ops::decode_moment(first, first_absmax, /*is_signed=*/true).to(device),
      ops::decode_moment(second, slot.moment("exp_avg_sq_absmax"), /*is_signed=*/false).to(device)};
}

}  // namespace lft::train
