// AdamW with moments in float32, as in torch.optim.AdamW.
#pragma once
#include "src/train/optim/update_rule.h"

namespace lft::train {

RulePtr make_adamw(const RuleOptions& options);

/// A rule with Adam's two moments, in float32 or in 8 bits.
class AdamRule : public UpdateRule {
 public:
  explicit AdamRule(const RuleOptions& options) : options_(options) {}
  at::Tensor direction(const Slot& slot) const override;
  bool writes_copies() const override { return true; }

 protected:
  /// For updates whose moments are exp_avg and exp_avg_sq in float32.
  void apply_wide(const std::vector<Update>& updates, const ops::GradVerdict& verdict) const;
  ops::AdamWOptions op_options(bool decays) const;

 private:
  RuleOptions options_;
};

/// Adam's moments as float32 with their weight; undefined if the slot has none.
struct AdamMoments {
  at::Tensor exp_avg, exp_avg_sq;
};
AdamMoments adam_moments(const Slot& slot);

}  // namespace lft::train
