// What a pass records of the routers of experts, and the gradient of their load balancing loss,
// against transformers (tests/goldens/models/qwen_vl.json).
#include <numeric>

#include "families/tiny_qwen.h"
#include "models/objective/forward_loss.h"

namespace lft::test::qwen_vl_test {
namespace {

constexpr double kWeight = 8;  // BALANCE of make_qwen_vl.py

class ExpertBalance : public QwenVlCase {
 protected:
  ExpertBalance() {
    for (at::Tensor& parameter : model_->parameters()) parameter.set_requires_grad(true);
  }

  struct Pass {
    layers::RoutingPtr routing;
    std::vector<at::Tensor> gradients;
  };
  Pass run(double weight, int64_t recompute, const family::Batch& batch) {
    Pass pass{.routing = c10::make_intrusive<layers::Routing>(weight), .gradients = {}};
    for (at::Tensor& parameter : model_->parameters()) parameter.mutable_grad().reset();
    objective::forward_loss({.recompute = recompute, .routing = pass.routing}, model_, batch)
        .backward();
    for (const at::Tensor& parameter : model_->parameters())
      pass.gradients.push_back(parameter.grad());
    return pass;
  }
  Pass run(double weight, int64_t recompute = 0) { return run(weight, recompute, batch_); }

  /// Tokens of each layer.
  std::vector<int64_t> sums(const layers::Routing& routing) const {
    std::vector<int64_t> sums;
    const std::vector<int64_t>& tokens = routing.tokens();
    for (auto at = tokens.begin(); at != tokens.end(); at += config_.text.experts.count)
      sums.push_back(std::accumulate(at, at + config_.text.experts.count, int64_t{0}));
    return sums;
  }

  family::Model model_ = make_qwen(config_);
  family::Batch batch_ = golden_batch(config_, entry_);
};

TEST_P(ExpertBalance, LossAndGradientsAreTransformers) {
  const Pass pass = run(kWeight);
  const double want = entry_["balance_loss"];
  // Probabilities have the errors of a few hundred products, as log-probabilities have.
  EXPECT_NEAR(pass.routing->loss().item<double>(), want, 1e-5 * want);
  const Json &norms = entry_["balanced_gradient_norms"], &without = entry_["gradient_norms"];
  double most = 0;
  for (const auto& item : norms.items()) most = std::max(most, item.value().get<double>());
  size_t i = 0, moved = 0;
  for (const auto& item : model_->named_parameters()) {
    const double norm = norms[item.key()], plain = without[item.key()];
    EXPECT_NEAR(pass.gradients[i++].norm().item<double>(), norm, 1e-4 * norm + 1e-6 * most)
        << item.key();
    moved += std::abs(norm - plain) > 1e-2 * plain;
  }
  EXPECT_EQ(i, norms.size());
  EXPECT_GT(moved, i / 4);  // the loss is not lost in the tolerance
}

TEST_P(ExpertBalance, ARecomputedPassIsTheSameAndCountedOnce) {
  const Pass kept = run(kWeight), again = run(kWeight, 1);
  EXPECT_EQ(kept.routing->tokens(), again.routing->tokens());
  EXPECT_TRUE(at::equal(kept.routing->loss(), again.routing->loss()));
  for (size_t i = 0; i < kept.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(kept.gradients[i], again.gradients[i])) << i;
}

TEST_P(ExpertBalance, PaddingDoesNotCount) {
  const Pass padded = run(kWeight), packed = run(kWeight, 0, packed_of(batch_));
  EXPECT_EQ(padded.routing->tokens(), packed.routing->tokens());
  const double want = padded.routing->loss().item<double>();
  EXPECT_NEAR(packed.routing->loss().item<double>(), want, 1e-6 * want);
}

TEST_P(ExpertBalance, TheLastLayerComputesWhatTheLossNeeds) {
  const int64_t choices = config_.text.experts.per_token,
                real = choices * batch_.lengths_b.sum().item<int64_t>(),
                supervised = choices * (batch_.labels_bt != -100).sum().item<int64_t>();
  const size_t layers = static_cast<size_t>(std::ranges::count(config_.text.sparse, true));
  ASSERT_TRUE(config_.text.sparse.back());
  std::vector<int64_t> want(layers, real);
  EXPECT_EQ(sums(*run(kWeight).routing), want);
  want.back() = supervised;
  const Pass plain = run(0);
  EXPECT_EQ(sums(*plain.routing), want);
  for (at::Tensor& parameter : model_->parameters()) parameter.mutable_grad().reset();
  objective::forward_loss({}, model_, batch_).backward();
  size_t i = 0;
  for (const at::Tensor& parameter : model_->parameters())
    EXPECT_TRUE(at::equal(parameter.grad(), plain.gradients[i++])) << i;
}

INSTANTIATE_TEST_SUITE_P(Cases, ExpertBalance,
                         ::testing::Values("qwen3_vl_moe", "qwen3_vl_moe_step_tied", "qwen3_5_moe"),
                         case_name);

}  // namespace
}  // namespace lft::test::qwen_vl_test
