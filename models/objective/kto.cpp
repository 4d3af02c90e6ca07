#include "models/objective/kto.h"

#include <ATen/ATen.h>

#include "kernels/common/error.h"
#include "models/objective/pair_scores.h"

namespace lft::objective {
namespace {

class Kto : public Objective {
 public:
  explicit Kto(const KtoOptions& options) : options_(options) {}

  at::Tensor terms(const at::Tensor& logprobs_k, const family::Batch& batch,
                   double kl) const override {
    return logprobs_k.numel() == 0 ? at::zeros({}, logprobs_k.options())
                                   : scores(logprobs_k, batch, kl).loss_n.sum();
  }
  int64_t normaliser(const GlobalBatchCounts& counts) const override { return counts.rows; }
  bool uses_reference() const override { return true; }
  bool uses_kl() const override { return true; }
  std::vector<std::string> figure_names() const override {
    return {"rewards_chosen", "rewards_rejected", "reward_margin",
            "logps_chosen",   "logps_rejected",   "kl"};
  }
  at::Tensor figures(const at::Tensor& logprobs_k, const family::Batch& batch,
                     double kl) const override {
    const Scores each = scores(logprobs_k.to(at::kDouble), batch, kl);
    const at::Tensor chosen = each.desirable_n, rejected = 1 - each.desirable_n,
                     reward = options_.beta * each.ratio_n;
    return at::stack(
        {each.loss_n, chosen, chosen * reward, rejected * reward, chosen * each.logprobs_n,
         rejected * each.logprobs_n, at::full_like(reward, kl)},
        1);
  }
  Figures means(std::span<const double> sums, int64_t units) const override {
    const double rows = static_cast<double>(units), chosen = sums[0], rejected = rows - chosen;
    Figures figures;
    if (chosen > 0) figures.emplace_back("rewards_chosen", sums[1] / chosen);
    if (rejected > 0) figures.emplace_back("rewards_rejected", sums[2] / rejected);
    if (chosen > 0 && rejected > 0)
      figures.emplace_back("reward_margin", sums[1] / chosen - sums[2] / rejected);
    if (chosen > 0) figures.emplace_back("logps_chosen", sums[3] / chosen);
    if (rejected > 0) figures.emplace_back("logps_rejected", sums[4] / rejected);
    figures.emplace_back("kl", sums[5] / rows);
    return figures;
  }

 private:
  /// Of each row; desirable_n is 1 or 0.
  struct Scores {
    at::Tensor loss_n, logprobs_n, ratio_n, desirable_n;
  };
  Scores scores(const at::Tensor& logprobs_k, const family::Batch& batch, double kl) const {
    if (!batch.desirable_n.defined())
      throw Error(ErrorKind::kInternal, "rows of KTO without their labels");
    Scores each;
    each.logprobs_n = sum_answers(logprobs_k, batch).logprobs_n;
    each.ratio_n = each.logprobs_n - reference_of(batch, logprobs_k);
    each.desirable_n = batch.desirable_n.to(logprobs_k.options());
    const at::Tensor weight = options_.desirable_weight * each.desirable_n +
                              options_.undesirable_weight * (1 - each.desirable_n),
                     sign = 2 * each.desirable_n - 1;
    each.loss_n = weight * at::sigmoid(sign * options_.beta * (kl - each.ratio_n));
    return each;
  }

  const KtoOptions options_;
};

}  // namespace

std::unique_ptr<const Objective> make_kto(const KtoOptions& options) {
  return std::make_unique<Kto>(options);
}

}  // namespace lft::objective
