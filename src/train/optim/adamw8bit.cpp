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
  /// Embeddings keep float32 moments, as transformers and PEFT configure in bitsandbytes: the rows
  /// of rare tokens have zero gradients in most steps, which a shared scale rounds badly.
  std::vector<MomentSpec> moments(at::IntArrayRef sizes, bool embedding) const override {
    if (embedding || c10::multiply_integers(sizes) < kLeast8Bit)
      return {{"exp_avg"}, {"exp_avg_sq"}};
    return {{"exp_avg", at::kByte},
            {"exp_avg_sq", at::kByte},
            {"exp_avg_absmax", at::kFloat, kMomentBlock},
            {"exp_avg_sq_absmax", at::kFloat, kMomentBlock}};
  }

  void apply(const std::vector<Update>& updates, const ops::GradVerdict& verdict) const override {
    std::vector<Update> wide;
    std::vector<ops::AdamW8Tensor> narrow[2];  // [1]: those with weight decay
    for (const Update& u : updates) {
      if (u.moments.size() == 2) {
        wide.push_back(u);
      } else {
        narrow[u.decays].push_back({u.param, u.grad, u.moments[0], u.moments[1], u.moments[2],
                                    u.moments[3], u.lr, u.t, u.copy});
      }
    }
    if (!wide.empty() || updates.empty()) apply_wide(wide, verdict);
    for (const bool decays : {true, false}) {
      if (!narrow[decays].empty()) ops::adamw8_(narrow[decays], op_options(decays), verdict);
    }
  }
};

}  // namespace

RulePtr make_adamw8bit(const RuleOptions& options) { return std::make_unique<AdamW8Bit>(options); }

}  // namespace lft::train
