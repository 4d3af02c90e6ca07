// The objective of a step: supervised fine-tuning is the default, and an objective over pairs of
// rows needs only its terms and its normaliser from the step.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "models/loss_sum.h"
#include "src/data/batch.h"
#include "train/image_sample.h"
#include "train/tiny_steps.h"

namespace lft::objective_test {
using namespace lft::test;
namespace {

/// Rows 2i and 2i + 1 are a chosen and a rejected answer: -log sigmoid(beta (s_chosen -
/// s_rejected)) of the answers' summed log-probabilities, like DPO (Rafailov et al. 2023) without a
/// reference model.
class PairLogistic : public objective::Objective {
 public:
  static constexpr double kBeta = 0.1;
  static at::Tensor of_sums(const at::Tensor& sums_r) {
    const at::Tensor pairs = sums_r.view({-1, 2});
    return -at::log_sigmoid(kBeta * (pairs.select(1, 0) - pairs.select(1, 1))).sum();
  }
  at::Tensor terms(const at::Tensor& logprobs_k, const family::Batch& batch,
                   double) const override {
    const at::Tensor labels = batch.labels_bt;
    const at::Tensor row_of_k =
        (labels.narrow(1, 1, labels.size(1) - 1) != -100).nonzero().select(1, 0);
    return of_sums(
        at::zeros({labels.size(0)}, logprobs_k.options()).index_add(0, row_of_k, logprobs_k));
  }
  int64_t normaliser(const objective::GlobalBatchCounts& counts) const override {
    return counts.rows / 2;
  }
};

class ObjectiveOfPairs : public TinySteps {
 protected:
  ObjectiveOfPairs() { options.objective = &pairs_; }

  static std::vector<Sample> rows() {
    std::vector<Sample> rows;
    for (int i = 0; i < 8; ++i) rows.push_back(image_sample(i, 6 + 3 * i, 1 + (5 * i) % 7));
    return rows;
  }

  /// The first moments, which are 0.1 of the gradients.
  std::vector<at::Tensor> moments() const {
    std::vector<at::Tensor> moments;
    for (const Slot& slot : optimizer->slots()) moments.push_back(slot.moment("exp_avg").clone());
    return moments;
  }

  const PairLogistic pairs_;
};

TEST(SupervisedNll, IsMinusTheSumOverTheTokensOfTheGlobalBatch) {
  const objective::Objective& nll = objective::supervised_nll();
  const at::Tensor logprobs = at::tensor({-0.5F, -1.25F, -2.0F});
  EXPECT_EQ(nll.terms(logprobs, {}, 0).item<float>(), 3.75F);
  EXPECT_EQ(nll.terms(logprobs.narrow(0, 0, 0), {}, 0).item<float>(), 0.0F);
  EXPECT_EQ(nll.normaliser({.supervised = 7, .rows = 2}), 7);
  EXPECT_TRUE(nll.sums_tokens());
}

TEST_F(ObjectiveOfPairs, LossAndGradientsAreThoseOfTheFormula) {
  build();
  // The formula on one row at a time, differentiated by autograd.
  std::vector<at::Tensor> sums;
  for (const Sample& row : rows())
    sums.push_back(-test::loss_sum(model, collate({row}, layout->encode, at::kCPU)));
  const at::Tensor want = PairLogistic::of_sums(at::stack(sums)) / 4;
  std::vector<at::Tensor> tensors;
  for (const Slot& slot : optimizer->slots()) tensors.push_back(slot.param.tensor);
  const auto gradients = torch::autograd::grad({want}, tensors);

  const StepOutcome outcome = take({rows()});
  EXPECT_EQ(outcome.result, StepResult::kTaken);
  EXPECT_NEAR(outcome.loss, want.item<double>(), 1e-5 * want.item<double>());
  const std::vector<at::Tensor> got = moments();
  // Sums of float32 in another order, as in OneTimesEightEqualsEightTimesOne.
  for (size_t i = 0; i < got.size(); ++i) {
    const float apart = (got[i] - 0.1 * gradients[i]).abs().max().item<float>();
    EXPECT_LE(apart, 1e-5 * outcome.stats.norm) << optimizer->slots()[i].param.name;
  }
}

TEST_F(ObjectiveOfPairs, DoesNotDependOnHowTheGlobalBatchIsCut) {
  build();
  const StepOutcome whole = take({rows()});
  const std::vector<at::Tensor> after_whole = moments();
  build();
  const std::vector<Sample> all = rows();
  const StepOutcome cut =
      take({{all[0], all[1]}, {all[2], all[3], all[4], all[5]}, {all[6], all[7]}});
  EXPECT_NEAR(whole.loss, cut.loss, 1e-6 * whole.loss);
  const std::vector<at::Tensor> after_cut = moments();
  for (size_t i = 0; i < after_whole.size(); ++i)
    EXPECT_LE((after_whole[i] - after_cut[i]).abs().max().item<float>(), 1e-5 * whole.stats.norm);
}

}  // namespace
}  // namespace lft::objective_test
