// Messages of a run at its end, and before its start, if it cannot have learned anything.
#include <gtest/gtest.h>

#include <cmath>

#include "models/lora/inject_select.h"
#include "src/train/check/check.h"
#include "src/train/proof/adapter_reach.h"
#include "src/train/run/loss_moved.h"
#include "src/train/run/trainer.h"
#include "train/tiny_run.h"

namespace lft::test::loss_moved_test {
using namespace lft::train;
namespace {

/// `start`, its total decrease, and a scatter of both signs.
std::vector<double> losses_of(size_t steps, double start, double fall, double scatter) {
  std::vector<double> losses;
  for (size_t i = 0; i < steps; ++i) {
    const double way = static_cast<double>(i) / static_cast<double>(steps - 1);
    losses.push_back(start - fall * way + scatter * std::sin(2.4 * static_cast<double>(i)));
  }
  return losses;
}

TEST(LossMoved, StandsStillWhereTheScatterLeavesNoRoomForMore) {
  EXPECT_NE(judge_losses(losses_of(30, 3.5, 0.001, 0.005)).find("moved by less than"),
            std::string::npos);
  EXPECT_NE(judge_losses(losses_of(3000, 3.5, 0, 0.2)), "");
  EXPECT_NE(judge_losses(losses_of(10, 3.5, 0, 0)), "");
}

TEST(LossMoved, NothingIsSaidOfAFallOfNoiseOrOfTooFewSteps) {
  EXPECT_EQ(judge_losses(losses_of(30, 3.5, 0.1, 0.005)), "");
  EXPECT_EQ(judge_losses(losses_of(30, 3.5, -0.1, 0.005)), "");  // a rise gives no such warning
  EXPECT_EQ(judge_losses(losses_of(30, 3.5, 0, 0.2)), "");       // noise hides the decrease
  EXPECT_EQ(judge_losses(losses_of(9, 3.5, 0, 0)), "");
  EXPECT_EQ(judge_losses(losses_of(30, 0.001, 0, 0)), "");  // trained before
  EXPECT_EQ(judge_losses({}), "");
}

class NothingLearnt : public ::testing::Test {
 protected:
  std::string trained(const Recipe& recipe) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    int code = -1;
    try {
      code = train::train(recipe);
    } catch (const Error& error) {  // the capture ends either way
      std::puts(error.what());
    }
    const std::string said =
        ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, 0) << said;
    return said;
  }
  /// All rows in every step, so that losses differ only by learning.
  Recipe recipe(const std::string& out) const {
    Recipe recipe = run_.recipe(out);
    recipe.data.eval.clear();
    recipe.lora.dropout = 0;
    recipe.train.max_steps = recipe.train.batch_size = 12;
    return recipe;
  }
  std::string metrics(const Recipe& recipe) const {
    return slurp(recipe.output_dir + "/metrics.jsonl");
  }
  TinyRun run_;
};

TEST_F(NothingLearnt, ARateThatMovesNoLossIsToldAtTheEnd) {
  Recipe slow = recipe("slow");
  slow.optim.lr = 1e-9;
  const std::string said = trained(slow);
  EXPECT_NE(said.find("warning: the loss of the run's own training rows has not moved"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("next: lft debug overfit " + slow.output_dir), std::string::npos) << said;
  EXPECT_NE(metrics(slow).find("\"event\":\"nothing_learnt\""), std::string::npos);
  EXPECT_NE(slurp(slow.output_dir + "/report.html").find("nothing_learnt"), std::string::npos);
}

/// Two rows per step, so that step losses are uninformative: the probe's rows are the same.
TEST_F(NothingLearnt, NoiseOfBatchesHidesNoRunThatStandsStill) {
  Recipe slow = recipe("noise");
  slow.train.batch_size = 2;
  slow.lora.dropout = 0.3;
  slow.optim.lr = 1e-8;
  EXPECT_EQ(judge_probe(3, 2.9), "");
  EXPECT_EQ(judge_probe(3, NAN), "");
  EXPECT_EQ(judge_probe(NAN, 3), "");
  EXPECT_EQ(judge_probe(0.001, 0.001), "");
  const std::string said = trained(slow);
  EXPECT_NE(said.find("has not moved"), std::string::npos) << said;
  EXPECT_EQ(judge_losses(step_losses(slow.output_dir + "/metrics.jsonl")), "");
  EXPECT_NE(said.find("on the same rows without dropout"), std::string::npos) << said;
}

TEST_F(NothingLearnt, HealthyRunsDrawNoWarning) {
  for (const char* variant : {"lora", "dora", "pissa", "rslora"}) {
    for (const char* compute : {"fp32", "bf16", "fp16"}) {
      Recipe healthy = recipe(std::string(variant) + compute);
      healthy.lora.variant = variant;
      healthy.precision.compute = compute;
      const std::string said = trained(healthy);
      EXPECT_EQ(said.find("training rows has not moved"), std::string::npos) << said;
      EXPECT_EQ(said.find("can show"), std::string::npos) << said;
    }
  }
}

TEST_F(NothingLearnt, AnAlphaWithWhichNothingCanShowIsToldBeforeTheStart) {
  const auto checked = [](const Recipe& recipe) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = check(recipe);
    const std::string said =
        ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, 0) << said;
    return said;
  };
  Recipe tiny = recipe("tiny");
  EXPECT_EQ(checked(tiny).find("can show"), std::string::npos);
  tiny.lora.alpha = 1e-13;
  const std::string said = checked(tiny);
  EXPECT_NE(said.find("the adapters cannot change the output"), std::string::npos) << said;
  EXPECT_NE(said.find("Look at lora.alpha (1e-13"), std::string::npos) << said;
}

/// The bound applies to the steps that a run has actually done.
TEST_F(NothingLearnt, TheReachBoundsTheChangeOfEveryWeight) {
  lft::train::Run run = make_run(open_inputs(recipe("bound")));
  const at::NoGradGuard no_grad;
  for (const Slot& slot : run.optimizer.slots()) {
    if (slot.param.name.ends_with(".lora_B.weight"))
      at::Tensor(slot.param.tensor).uniform_(-0.01, 0.01);
  }
  const double reach = adapter_reach(run.model.model, 0);
  double largest = 0;
  for (const lora::LinearSite& site : lora::linear_sites(*run.model.model)) {
    if (site.layer->adapter() == nullptr) continue;
    const at::Tensor weight = site.layer->weight.detach().to(at::kFloat);
    const at::Tensor change = site.layer->adapter()->merged_oi(weight) - weight;
    largest = std::max(largest, (change.abs().max() / weight.abs().max()).item<double>());
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(largest, reach * (1 + 1e-5));
  EXPECT_LE(reach, 20 * largest);  // the bound is not too loose
  EXPECT_GT(adapter_reach(run.model.model, 1), reach);
}

}  // namespace
}  // namespace lft::test::loss_moved_test
