// lft debug overfit: a healthy run learns its batch; each planted fault is named, and no other
// one.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "debug/learnable.h"
#include "src/base/text.h"
#include "src/debug/isolate/overfit.h"
#include "src/debug/isolate/overfit_batch.h"
#include "src/debug/isolate/overfit_suspects.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace lft::test::overfit_test {
namespace {

using GradientHook = std::function<void(int64_t, Optimizer&)>;

Slot& slot_of(Optimizer& optimizer, const std::string& name) {
  for (Slot& slot : optimizer.slots()) {
    if (slot.param.name == name) return slot;
  }
  throw std::out_of_range(name);
}

constexpr char kUp[] = "language_model.model.layers.0.mlp.up_proj";

class OverfitTest : public ::testing::Test {
 protected:
  OverfitTest() { test::make_learnable(run_); }

  OverfitReport go(const Recipe& recipe, TrialHooks hooks = {}, int64_t steps = 200) {
    lines_.clear();
    return overfit(recipe, {.steps = steps,
                            .out = {},
                            .print = [this](const std::string& line) { lines_.push_back(line); },
                            .hooks = hooks});
  }
  std::string text() const { return join(lines_, "\n"); }
  static std::vector<std::string> is_cause(const OverfitReport& report) {
    std::vector<std::string> names;
    for (const OverfitSuspect& suspect : report.suspects) {
      if (suspect.is_cause) names.push_back(suspect.name);
    }
    return names;
  }
  static std::string evidence(const OverfitReport& report, const std::string& name) {
    for (const OverfitSuspect& suspect : report.suspects) {
      if (suspect.name == name) return join(suspect.evidence, "\n");
    }
    return "";
  }
  /// Only adapters: the tiny model's projector alone is strong enough to learn the batch.
  Recipe adapters(const std::string& out) const {
    Recipe recipe = run_.recipe(out);
    recipe.full.clear();
    return recipe;
  }

  test::TinyRun run_;
  std::vector<std::string> lines_;
};

TEST_F(OverfitTest, AHealthyRunLearnsTheBatchAndLeavesOnePage) {
  Recipe recipe = run_.recipe("out");
  recipe.lora.dropout = 0.3;
  recipe.optim.weight_decay = 1;
  recipe.optim.warmup_ratio = 1;
  recipe.train.grad_accum = 3;
  const OverfitReport report = go(recipe);
  EXPECT_TRUE(report.healthy()) << text();
  EXPECT_EQ(is_cause(report), std::vector<std::string>{});
  EXPECT_EQ(report.samples.size(), 8u);
  EXPECT_EQ(report.losses.size(), 200u);
  EXPECT_EQ(report.floor, 0);
  EXPECT_LT(report.lowest, 0.05);
  EXPECT_NEAR(report.losses.front(), report.start,
              1e-5 * report.start);  // the step's own loss and the recomputed one
  EXPECT_EQ(std::count_if(lines_.begin(), lines_.end(),
                          [](const std::string& line) { return line.starts_with("step "); }),
            21);
  EXPECT_TRUE(lines_.back().starts_with("healthy ")) << text();
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(recipe.output_dir)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  EXPECT_EQ(files, std::vector<std::string>{recipe.output_dir + "/debug-overfit/overfit.html"});
  const std::string page = test::slurp(report.page);
  EXPECT_NE(page.find("Overfitting one batch"), std::string::npos);
  EXPECT_NE(page.find("\"verdict\",\"healthy\""), std::string::npos);
  EXPECT_NE(page.find("200 steps"), std::string::npos);
  EXPECT_EQ(page.find("src=\"http"), std::string::npos);
}

TEST_F(OverfitTest, LowPrecisionLearnsItToo) {
  for (const char* compute : {"bf16", "fp16"}) {
    Recipe recipe = run_.recipe(compute);
    recipe.precision.compute = compute;
    recipe.train.batch_size = 3;  // 8 samples in three micro-batches
    const OverfitReport report = go(recipe, {}, 100);
    EXPECT_TRUE(report.healthy()) << compute << "\n" << text();
  }
}

class Frozen : public OverfitTest, public ::testing::WithParamInterface<int> {};

TEST_P(Frozen, AnAdapterIsNamedWithTheReasonThoughTheOthersLearn) {
  const std::string b = std::string(kUp) + ".lora_B.weight";
  const std::vector<TrialHooks> ways = {
      {.built =
           [&](lft::train::Run& run) {
             slot_of(run.optimizer, b).param.tensor.set_requires_grad(false);
           }},
      {.gradients_ready =
           [&](int64_t, Optimizer& optimizer) {
             slot_of(optimizer, b).param.tensor.mutable_grad() = at::Tensor();
           }},
      {.gradients_ready =
           [&](int64_t, Optimizer& optimizer) {
             slot_of(optimizer, b).param.tensor.mutable_grad().zero_();
           }},
      {.gradients_ready = [&](int64_t, Optimizer& optimizer) {
        for (ParamGroup& group : optimizer.groups()) {  // no group updates it
          std::erase_if(group.members,
                        [&](size_t member) { return optimizer.slots()[member].param.name == b; });
        }
      }}};
  const std::vector<std::string> reasons = {
      "lora_B requires no gradient", "lora_B had no gradient in any step",
      "lora_B had a gradient of exactly zero in every step", "lora_B had no gradient in any step"};
  const auto way = static_cast<size_t>(GetParam());
  const OverfitReport report = go(run_.recipe("out"), ways[way]);
  EXPECT_FALSE(report.healthy());
  EXPECT_TRUE(report.near_zero()) << text();
  const std::string found = evidence(report, "frozen layer");
  EXPECT_NE(found.find("1 of 16 trained modules are frozen"), std::string::npos) << text();
  EXPECT_NE(found.find(std::string(kUp) + ": " + reasons[way]), std::string::npos) << text();
}

INSTANTIATE_TEST_SUITE_P(Ways, Frozen, ::testing::Range(0, 4));

TEST_F(OverfitTest, ATinyLearningRateIsNamedWithOneThatWorks) {
  Recipe recipe = adapters("out");
  recipe.optim.lr = 1e-9;
  const OverfitReport report = go(recipe, {}, 60);
  EXPECT_EQ(is_cause(report), std::vector<std::string>{"learning rate too low"}) << text();
  const std::string found = evidence(report, "learning rate too low");
  EXPECT_NE(found.find("50 steps at 1e-09: loss"), std::string::npos) << text();
  EXPECT_NE(found.find("try optim.lr=0.01"), std::string::npos) << text();
  EXPECT_TRUE(lines_.back().starts_with("found      learning rate too low")) << text();
  recipe.optim.lr = 0;
  recipe.output_dir += "-0";
  EXPECT_EQ(is_cause(go(recipe, {}, 20)), std::vector<std::string>{"learning rate too low"})
      << text();
}

TEST_F(OverfitTest, AHugeLearningRateIsNamedWhereTheThreeAreCleared) {
  Recipe recipe = adapters("out");
  recipe.optim.lr = 10;  // at 1 the loss falls on some processors, due to rounding of products
  const OverfitReport report = go(recipe, {}, 60);
  EXPECT_EQ(is_cause(report), std::vector<std::string>{"learning rate too high"}) << text();
}

GradientHook scale_gradients(double factor) {
  return [factor](int64_t, Optimizer& optimizer) {
    for (at::Tensor gradient : optimizer.gradients()) {
      if (gradient.defined()) gradient.mul_(factor);
    }
  };
}

TEST_F(OverfitTest, AWrongReductionIsNamedWithItsFactor) {
  // A sum instead of a mean, a nearly vanished loss, a wrong sign.
  for (const double factor : {57.0, 1e-9, -1.0}) {
    const OverfitReport report = go(adapters("out" + std::to_string(factor)),
                                    {.built = {}, .gradients_ready = scale_gradients(factor)}, 100);
    EXPECT_FALSE(report.healthy());
    EXPECT_EQ(is_cause(report), std::vector<std::string>{"loss reduction"}) << text();
    char times[32];
    std::snprintf(times, sizeof times, ", %.4g times the mean's", factor);
    EXPECT_NE(evidence(report, "loss reduction").find(times), std::string::npos) << text();
  }
}

TEST_F(OverfitTest, AGradientThatIsWrongInOnePlaceOnlyIsAReductionOfTheWrongTokens) {
  const GradientHook skew = [](int64_t, Optimizer& optimizer) {
    slot_of(optimizer, std::string(kUp) + ".lora_B.weight").param.tensor.mutable_grad().mul_(-1);
  };
  const OverfitReport report = go(run_.recipe("out"), {.built = {}, .gradients_ready = skew}, 20);
  EXPECT_TRUE(is_cause(report).back() == "loss reduction") << text();
}

/// Unusual settings that still learn give no finding.
TEST_F(OverfitTest, HealthyVariantsAreNotAccused) {
  const std::vector<std::pair<const char*, std::function<void(Recipe&)>>> variants = {
      {"dora", [](Recipe& r) { r.lora.variant = "dora"; }},
      {"pissa", [](Recipe& r) { r.lora.variant = "pissa"; }},
      {"rslora", [](Recipe& r) { r.lora.variant = "rslora"; }},
      {"lora+", [](Recipe& r) { r.optim.lora_plus_ratio = 4; }},
      {"lion", [](Recipe& r) { r.optim.name = "lion"; }},
      {"muon", [](Recipe& r) { r.optim.name = "muon"; }},
      {"adamw8bit", [](Recipe& r) { r.optim.name = "adamw8bit"; }},
      {"eps", [](Recipe& r) { r.optim.eps = 1e-5; }},
      {"alpha", [](Recipe& r) { r.lora.alpha = 0.2; }},
      {"dropout", [](Recipe& r) { r.lora.dropout = 0.6; }},
      {"clipping", [](Recipe& r) { r.optim.clip_grad_norm = 1e-3; }},
      {"adapters alone", [](Recipe& r) { r.full.clear(); }},
  };
  for (const auto& [name, change] : variants) {
    Recipe recipe = run_.recipe(name);
    change(recipe);
    const OverfitReport report = go(recipe, {}, 60);
    EXPECT_EQ(is_cause(report), std::vector<std::string>{}) << name << "\n" << text();
  }
}

TEST_F(OverfitTest, OfTwoSettingsEachIsNamed) {
  Recipe recipe = run_.recipe("out");
  recipe.optim.eps = 10;
  recipe.lora.alpha = 1e-6;
  const OverfitReport report = go(recipe, {}, 20);
  EXPECT_EQ(is_cause(report), (std::vector<std::string>{"optim.eps", "lora.alpha"})) << text();
}

TEST_F(OverfitTest, ANonFiniteStepEndsIt) {
  const GradientHook spoil = [](int64_t step, Optimizer& optimizer) {
    if (step == 3)
      slot_of(optimizer, std::string(kUp) + ".lora_B.weight")
          .param.tensor.mutable_grad()
          .view(-1)[0] = NAN;
  };
  const OverfitReport report = go(run_.recipe("out"), {.built = {}, .gradients_ready = spoil});
  EXPECT_FALSE(report.healthy());
  EXPECT_EQ(report.stopped, "step 3: a gradient is not finite");
  EXPECT_EQ(report.losses.size(), 3u);
  EXPECT_NE(text().find("stopped    step 3"), std::string::npos) << text();
  EXPECT_TRUE(overfit_error(report).found.ends_with("stopped: step 3: a gradient is not finite"));
  EXPECT_NE(overfit_error(report).next.find("lft replay"), std::string::npos);
}

/// Simulates the effect of large weights without machine-dependent large weights.
TEST_F(OverfitTest, ARateWhoseStepsEndInNoFiniteValueIsNamedThoughTheLossFellFirst) {
  const GradientHook overflow = [](int64_t, Optimizer& optimizer) {
    const at::Tensor weight = slot_of(optimizer, std::string(kUp) + ".lora_B.weight").param.tensor;
    if (weight.detach().abs().max().item<float>() > 3) weight.mutable_grad().view(-1)[0] = NAN;
  };
  Recipe recipe = adapters("out");
  recipe.optim.lr = 0.3;
  const OverfitReport report = go(recipe, {.built = {}, .gradients_ready = overflow});
  EXPECT_NE(report.stopped.find("a gradient is not finite"), std::string::npos) << text();
  EXPECT_LT(report.lowest, report.start) << text();
  EXPECT_EQ(is_cause(report), std::vector<std::string>{"learning rate too high"}) << text();
  EXPECT_NE(evidence(report, "learning rate too high").find("it ended so: step "),
            std::string::npos)
      << text();
  EXPECT_EQ(overfit_error(report).next, "try optim.lr=0.03");
  EXPECT_EQ(text().find("lft debug nan"), std::string::npos) << text();
}

TEST_F(OverfitTest, StepsThatEndWhileTheLossStillFallsAreUnfinishedAndNoError) {
  Recipe recipe = run_.recipe("out");
  const OverfitReport report = go(recipe, {}, 8);
  EXPECT_FALSE(report.near_zero()) << text();
  EXPECT_TRUE(report.unfinished()) << text();
  EXPECT_TRUE(report.healthy()) << text();
  EXPECT_TRUE(lines_.back().starts_with("unfinished loss ")) << text();
  EXPECT_NE(test::slurp(report.page).find("\"verdict\",\"unfinished\""), std::string::npos);
}

TEST_F(OverfitTest, NothingWithAGradientIsNoCrash) {
  const TrialHooks all_frozen = {.built = [](lft::train::Run& run) {
    for (Slot& slot : run.optimizer.slots()) slot.param.tensor.set_requires_grad(false);
  }};
  const OverfitReport report = go(run_.recipe("out"), all_frozen, 10);
  EXPECT_EQ(is_cause(report).front(), "frozen layer") << text();
  EXPECT_NE(evidence(report, "frozen layer").find("16 of 16"), std::string::npos) << text();
  EXPECT_NE(report.stopped, "");
}

TEST_F(OverfitTest, TheIndependentMeanOfAUniformModelIsTheLogOfItsVocabulary) {
  lft::train::Run run = make_run(open_inputs(run_.recipe("out")));
  run.model.model->language_model->lm_head->weight.zero_();
  const StepSamples batch = overfit_batch(run);
  const MeanLoss mean = independent_mean_loss(run, batch);
  EXPECT_NEAR(mean.loss, std::log(264.0), 1e-12);
  for (const at::Tensor& gradient : mean.gradients) {
    if (gradient.defined()) {
      EXPECT_EQ(gradient.abs().max().item<float>(), 0);
    }
  }
}

TEST_F(OverfitTest, ContradictingAnswersLeaveAFloorThatIsNoFault) {
  nlohmann::json rows = nlohmann::json::array();
  for (const char* answer : {"xa", "xb", "xb", "xb"}) {
    rows.push_back({{"image", "red0.bmp"},
                    {"conversations",
                     {{{"from", "human"}, {"value", "<image>\nWhat?"}},
                      {{"from", "gpt"}, {"value", answer}}}}});
  }
  Recipe recipe = run_.recipe("out");
  recipe.data.train = run_.dir().write("contradiction.json", rows.dump());
  const OverfitReport report = go(recipe);
  const double nats =
      -(std::log(0.25) +
        3 * std::log(0.75));  // one token of each row cannot be predicted from its context
  EXPECT_NEAR(report.floor, nats / static_cast<double>(report.supervised), 1e-12);
  EXPECT_GT(report.lowest, report.floor - 1e-4);
  EXPECT_TRUE(report.healthy()) << text();
}

TEST_F(OverfitTest, TheBatchIsTheFirstOfTheOrderAndReachesWhatIsTrained) {
  Recipe recipe = run_.recipe("out");
  recipe.data.shuffle = false;
  {
    lft::train::Run run = make_run(open_inputs(recipe));
    EXPECT_EQ(
        sample_ids(overfit_batch(run)),
        (std::vector<std::string>{"row0", "row1", "row2", "row3", "row4", "row5", "row6", "row7"}));
  }
  nlohmann::json rows = nlohmann::json::array();
  for (int i = 0; i < 12; ++i) {
    nlohmann::json row = {
        {"id", "text" + std::to_string(i)},
        {"conversations",
         {{{"from", "human"}, {"value", "What?"}}, {{"from", "gpt"}, {"value", "red"}}}}};
    if (i == 10)
      row = {{"id", "image"},
             {"image", "red0.bmp"},
             {"conversations",
              {{{"from", "human"}, {"value", "<image>\nWhat?"}},
               {{"from", "gpt"}, {"value", "red"}}}}};
    rows.push_back(row);
  }
  recipe.data.train = run_.dir().write("late.json", rows.dump());
  lft::train::Run run = make_run(open_inputs(recipe));
  const std::vector<std::string> ids = sample_ids(overfit_batch(run));
  ASSERT_EQ(ids.size(), 8u);
  EXPECT_EQ(ids.front(), "text0");
  EXPECT_EQ(ids.back(), "image");
}

TEST_F(OverfitTest, AFolderInsideTheModelIsRefused) {
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "is inside the input",
                   overfit(run_.recipe("out"), {.out = run_.model() + "/x"}));
}

}  // namespace
}  // namespace lft::test::overfit_test
