#include "src/train/optim/adamw8bit.h"

#include <c10/util/accumulate.h>

#include "kernels/adamw8/adamw8.h"
#include "models/ops/update/adamw8.h"
#include "src/train/optim/adamw.h"

namespace lft::train {
namespace {

class AdamW8Bit final : public AdamRule {
 public:
  using AdamRule::AdamRule;
  std::vector<MomentSpec> moments(at::IntArrayRef sizes) const override {
    if (c10::multiply_integers(sizes) < kLeast8Bit) return {{"exp_avg"}, {"exp_avg_sq"}};
    return {{"exp_avg", at::kByte},
            {"exp_avg_sq", at::kByte},
            {"exp_avg_absmax", at::kFloat, kMomentBlock},
            {"exp_avg_sq_absmax", at::kFloat, kMomentBlock}};
  }

  void apply(const std::vector<Update>& updates, const ops::GradVerdict& verdict) const override {
    std::vector<Update> wide;
    std::vector<ops::AdamW8Tensor> narrow;
    for (const Update& u : updates) {
      if (u.moments.size() == 2) {
        wide.push_back(u);
      } else {
        narrow.push_back({u.param, u.grad, u.moments[0], u.moments[1], u.moments[2], u.moments[3],
                          u.lr, u.t, u.copy});
      }
    }
    if (!wide.empty() || narrow.empty()) apply_wide(wide, verdict);
    if (!narrow.empty()) ops::adamw8_(narrow, op_options(), verdict);
  }
};

}  // namespace

RulePtr make_adamw8bit(const RuleOptions& options) { return std::make_unique<AdamW8Bit>(options); }

}  // namespace lft::train
