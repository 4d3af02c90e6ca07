#include "models/objective/preference.h"

#include <ATen/ATen.h>

namespace lft::objective {
namespace {

class OfPairs : public Objective {
 public:
  OfPairs(const PairObjective& kind, const PairOptions& options, double sft_weight)
      : kind_(kind), options_(options), sft_weight_(sft_weight) {}

  at::Tensor terms(const at::Tensor& logprobs_k, const family::Batch& batch,
                   double) const override {
    return logprobs_k.numel() == 0 ? at::zeros({}, logprobs_k.options())
                                   : losses(scores(logprobs_k, batch)).sum();
  }
  int64_t normaliser(const GlobalBatchCounts& counts) const override { return counts.rows / 2; }
  int64_t rows_together() const override { return 2; }
  bool uses_reference() const override { return kind_.uses_reference; }
  std::vector<std::string> figure_names() const override {
    return {"rewards_chosen", "rewards_rejected", "reward_accuracy",
            "reward_margin",  "logps_chosen",     "logps_rejected"};
  }
  at::Tensor figures(const at::Tensor& logprobs_k, const family::Batch& batch,
                     double) const override {
    const PairScores pairs = scores(logprobs_k.to(at::kDouble), batch);
    const bool ratios = kind_.uses_reference;
    const at::Tensor chosen = options_.beta * (ratios ? pairs.chosen_ratio() : pairs.chosen),
                     rejected = options_.beta * (ratios ? pairs.rejected_ratio() : pairs.rejected);
    return at::stack({losses(pairs), chosen, rejected, (chosen >= rejected).to(at::kDouble),
                      chosen - rejected, pairs.chosen, pairs.rejected},
                     1);
  }

 private:
  at::Tensor losses(const PairScores& pairs) const {
    const at::Tensor loss = kind_.loss(pairs, options_);
    return sft_weight_ == 0 ? loss : loss - sft_weight_ * pairs.chosen_mean();
  }
  PairScores scores(const at::Tensor& logprobs_k, const family::Batch& batch) const {
    const AnswerSums sums = sum_answers(logprobs_k, batch);
    return pair_scores(sums, kind_.uses_reference ? reference_of(batch, logprobs_k) : at::Tensor());
  }

  const PairObjective& kind_;
  const PairOptions options_;
  const double sft_weight_;
};

}  // namespace

const std::vector<PairObjective>& pair_objectives() {
  static const std::vector<PairObjective> all = {
      {"dpo", dpo_loss, true, 0.1},     {"ipo", ipo_loss, true, 0.1},
      {"hinge", hinge_loss, true, 0.1}, {"apo_zero", apo_zero_loss, true, 0.1},
      {"simpo", simpo_loss, false, 2},  {"orpo", orpo_loss, false, 0.1}};
  return all;
}

std::unique_ptr<const Objective> make_pair_objective(const PairObjective& kind,
                                                     const PairOptions& options,
                                                     double sft_weight) {
  return std::make_unique<OfPairs>(kind, options, sft_weight);
}

}  // namespace lft::objective
