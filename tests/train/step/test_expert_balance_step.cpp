// Steps of a model with experts: the gradient of the load balancing loss by finite differences, and
// the figures of the routers.
#include <ATen/core/grad_mode.h>

#include "families/tiny_qwen.h"
#include "models/lora/inject_select.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/optim/adamw.h"
#include "src/train/step/expert_figures.h"
#include "src/train/step/step.h"
#include "train/names.h"

namespace lft::test::expert_balance_test {
using namespace lft::test;
namespace {

TEST(ExpertFigures, AreOfTheBusiestLayerAndOfAll) {
  EXPECT_TRUE(expert_figures({}, 4).empty());
  // Layers of 4 experts: each computes 5 tokens; one computes 6 of 8, two none.
  const objective::Figures figures = expert_figures({5, 5, 5, 5, 0, 6, 2, 0}, 4);
  EXPECT_EQ(figures, (objective::Figures{{"experts_unused", 0.25}, {"expert_load", 3.0}}));
}

TEST(ExpertFigures, TheLossIsOfSupervisedRunsWhoseConfigAsksForIt) {
  llama::LlamaConfig text;
  recipe::Recipe recipe;
  text.experts = {.count = 4, .balances = true, .balance_coefficient = 0.02};
  EXPECT_EQ(balance_weight(recipe, text), 0) << "no layer has experts";
  EXPECT_EQ(describe_balance(recipe, text), "");
  text.sparse = {false, true};
  EXPECT_EQ(balance_weight(recipe, text), 0.02);
  EXPECT_NE(describe_balance(recipe, text).find("is added to the loss, times 0.02"),
            std::string::npos);
  recipe.objective.name = recipe::ObjectiveName::kDpo;
  EXPECT_EQ(balance_weight(recipe, text), 0);
  EXPECT_NE(describe_balance(recipe, text).find("is left out"), std::string::npos);
  text.experts.balances = false;
  EXPECT_EQ(describe_balance(recipe, text), "");
}

class BalancedSteps : public ::testing::Test {
 protected:
  /// The same adapters each time, none of them zero; the learning rate is 0.
  void build(double scale = 1) {
    const family::ModelConfig config =
        registry::parse_config(qwen_vl_test::golden()["cases"]["qwen3_vl_moe"]["config"], "golden");
    model_ = qwen_vl_test::make_qwen(config);
    layout_->encode.config = config;
    inject_lora(select_sites(linear_sites(*model_), {"llm:all-linear"}),
                {.rank = 3, .alpha = 6, .dropout = 0}, 7);
    const std::vector<Trainable> trainables = make_trainable(*model_, {});
    const at::NoGradGuard no_grad;
    for (const Trainable& each : trainables)
      each.tensor.detach().copy_(qwen_vl_test::hashed(each.name, each.tensor.sizes()));
    optimizer_ =
        std::make_unique<Optimizer>(trainables, param_groups(trainables, 0, -1), make_adamw({}));
    scaler_ = std::make_unique<LossScaler>(LossScale{.enabled = scale != 1, .scale = scale});
    state_ = {};
    options_.clip_grad_norm = 0;
  }

  StepOutcome take(const std::vector<std::vector<Sample>>& micro) {
    StepSamples samples;
    samples.micro = micro;
    samples.layout = layout_;
    return train_step({model_, *optimizer_, *scaler_, Schedule{.kind = Schedule::Kind::kConstant}},
                      options_, samples, state_);
  }

  /// Texts of 5 to 14 tokens.
  static std::vector<Sample> rows() {
    std::vector<Sample> rows;
    for (int64_t row = 0; row < 4; ++row) {
      Sample sample{.id = std::to_string(row), .input_ids = {1}, .labels = {-100}, .images = {}};
      for (int64_t i = 1; i < 5 + 3 * row; ++i) {
        sample.input_ids.push_back(3 + (7 * i + 11 * row) % 40);
        sample.labels.push_back(i < 3 ? -100 : sample.input_ids.back());
      }
      rows.push_back(std::move(sample));
    }
    return rows;
  }

  static double figure(const StepOutcome& outcome, const std::string& name) {
    for (const auto& [key, value] : outcome.figures)
      if (key == name) return value;
    ADD_FAILURE() << "no figure " << name;
    return 0;
  }
  double objective(const std::vector<std::vector<Sample>>& micro) {
    const StepOutcome outcome = take(micro);
    return outcome.loss + options_.balance * figure(outcome, "balance_loss");
  }

  /// Tokens of each expert.
  std::vector<std::vector<int64_t>> choices(const std::vector<std::vector<Sample>>& micro) {
    std::vector<std::vector<int64_t>> found;
    for (const std::vector<Sample>& rows : micro) {
      const auto routing = c10::make_intrusive<Routing>(options_.balance);
      objective::forward_loss({.routing = routing}, model_, make_batch(*layout_, rows));
      found.push_back(routing->tokens());
    }
    return found;
  }

  /// The first moments, which are 0.1 of the gradients.
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const Slot& slot : optimizer_->slots()) all.push_back(slot.moment("exp_avg") / 0.1);
    return all;
  }

  /// The norm of the step's gradient and the slope of the objective along it.
  std::pair<double, double> slopes(const std::vector<std::vector<Sample>>& micro, double scale) {
    build(scale);
    const double norm = take(micro).stats.norm;
    const std::vector<at::Tensor> along = gradients();
    const auto chosen = choices(micro);
    double ends[2];
    for (int end = 0; end < 2; ++end) {
      build();
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < along.size(); ++i)
        optimizer_->slots()[i].param.tensor.detach().add_(along[i],
                                                          (end == 0 ? -kStep : kStep) / norm);
      EXPECT_EQ(choices(micro), chosen) << "the objective jumps where a choice changes";
      const at::AutoGradMode with_graph(true);
      ends[end] = objective(micro);
    }
    return {norm, (ends[1] - ends[0]) / (2 * kStep)};
  }

  static constexpr double kStep = 3e-4;  // no expert of a token changes
  family::Model model_{nullptr};
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LossScaler> scaler_;
  std::shared_ptr<BatchLayout> layout_ = std::make_shared<BatchLayout>();
  StepOptions options_{.balance = 3};
  StepState state_;
};

TEST_F(BalancedSteps, GradientsAreFiniteDifferencesHoweverRowsAreSplit) {
  const std::vector<Sample> all = rows();
  const std::vector<std::vector<Sample>> whole = {all},
                                         split = {{all[0]}, {all[1], all[2], all[3]}};
  for (const auto& micro : {whole, split}) {
    for (const double scale : {1.0, 1024.0}) {
      const auto [norm, slope] = slopes(micro, scale);
      // Float32: some 1e-6 of each term, over 2 kStep.
      EXPECT_NEAR(slope, norm, 1e-2 * norm) << micro.size() << " micro-batches, scale " << scale;
      build();
      options_.balance = 0;
      const double plain = take(micro).stats.norm;
      options_.balance = 3;
      EXPECT_GT(std::abs(norm - plain), 0.1 * plain) << "the loss is a large part of the gradient";
    }
  }
}

TEST_F(BalancedSteps, ThePartsOfASplitMicroBatchAreItsPasses) {
  const std::vector<Sample> all = rows();
  build();
  const StepOutcome apart = take({{all[0], all[1]}, {all[2], all[3]}});
  build();
  state_.split = 2;
  const StepOutcome parts = take({all});
  EXPECT_EQ(apart.figures, parts.figures);
  EXPECT_NEAR(apart.stats.norm, parts.stats.norm, 1e-5 * apart.stats.norm);
  build();
  const StepOutcome whole = take({all});
  for (const char* name : {"experts_unused", "expert_load"})
    EXPECT_EQ(figure(whole, name), figure(apart, name)) << name;
  EXPECT_GT(std::abs(figure(whole, "balance_loss") - figure(apart, "balance_loss")), 1e-4)
      << "this depends on the split";
}

TEST_F(BalancedSteps, WithoutTheLossOnlyUsageIsReported) {
  build();
  options_.balance = 0;
  const StepOutcome outcome = take({rows()});
  ASSERT_EQ(outcome.figures.size(), 2u);
  EXPECT_GE(figure(outcome, "experts_unused"), 0);
  // One expert computes all tokens: experts / choices of a token.
  const llama::ExpertConfig& experts = model_->config.text.experts;
  EXPECT_GE(figure(outcome, "expert_load"), 1);
  EXPECT_LE(figure(outcome, "expert_load"),
            static_cast<double>(experts.count) / static_cast<double>(experts.per_token));
}

}  // namespace
}  // namespace lft::test::expert_balance_test
