// lft debug bare: the part that breaks a run is named, the others pass, and a healthy run has none.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "debug/stored_model.h"
#include "src/base/text.h"
#include "src/debug/isolate/bare.h"
#include "support/expect_error.h"
#include "train/pass_sizes.h"

namespace lft::test::bare_test {
namespace {

class BareTest : public ::testing::Test {
 protected:
  BareReport go(const Recipe& recipe, TrialHooks hooks = {}) {
    lines_.clear();
    return bare(recipe, {.steps = 12,
                         .print = [this](const std::string& line) { lines_.push_back(line); },
                         .hooks = hooks});
  }
  std::string text() const { return join(lines_, "\n"); }
  static std::vector<std::string> parts(const BareReport& report) {
    std::vector<std::string> names;
    for (const BareTrial& trial : report.trials) names.push_back(trial.part);
    return names;
  }
  static const BareTrial& trial(const BareReport& report, const std::string& part) {
    for (const BareTrial& one : report.trials) {
      if (one.part == part) return one;
    }
    throw std::out_of_range(part);
  }
  /// A recipe with every optional part.
  Recipe full_recipe() const {
    Recipe recipe = run_.recipe("out");
    recipe.precision.compute = "bf16";
    recipe.lora.dropout = 0.05;
    recipe.optim.weight_decay = 0.1;
    recipe.train.grad_accum = 2;
    recipe.train.activation_checkpointing = "block";
    return recipe;
  }

  test::TinyRun run_;
  std::vector<std::string> lines_;
};

TEST_F(BareTest, AHealthyRunPassesEveryPartAndLeavesNothing) {
  ::testing::internal::CaptureStdout();
  const BareReport report = go(full_recipe());
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("done       12 steps"), std::string::npos) << printed;
  EXPECT_EQ(printed.find("report.html"), std::string::npos) << printed;  // deleted with its folder
  EXPECT_TRUE(report.healthy()) << text();
  EXPECT_EQ(parts(report), (std::vector<std::string>{"core", "precision", "clipping", "schedule",
                                                     "weight decay", "dropout", "accumulation",
                                                     "activation checkpointing", "lft train"}));
  EXPECT_EQ(trial(report, "precision").settings,
            std::vector<std::string>{"precision.compute fp32 -> bf16"});
  for (const BareTrial& one : report.trials) {
    if (one.part != "lft train") {
      EXPECT_LT(one.after, one.before) << one.part;
    }
  }
  EXPECT_TRUE(lines_.back().starts_with("healthy ")) << text();
  EXPECT_FALSE(fs::exists(run_.dir().file("out")));
}

/// The samples whose loss is evaluated are truncated and packed like the recipe's.
TEST_F(BareTest, NoPassIsLargerThanThePackedRecipeAllows) {
  Json rows = Json::parse(test::slurp(run_.dir().file("rows.json")));
  for (const int row : {0, 3, 6, 9}) rows[row]["conversations"][1]["value"] = std::string(200, 'a');
  run_.dir().write("rows.json", rows.dump());
  Recipe recipe = run_.recipe("out");
  recipe.data.max_tokens =
      100;  // a long row and two short ones fit the budget, three long ones do not
  recipe.data.shuffle = false;
  recipe.train.batch_size = 12;
  recipe.train.max_tokens_per_step = 210;
  test::PassSizes sizes;
  const ObserveCalls observe(sizes);
  EXPECT_TRUE(go(recipe).healthy()) << text();
  EXPECT_GT(sizes.passes, 100);
  EXPECT_LE(sizes.largest, 210);
}

TEST_F(BareTest, WhatTheRecipeLacksIsNotPutBack) {
  Recipe recipe = run_.recipe("out");
  recipe.lora.dropout = 0;
  recipe.optim.schedule = "constant";
  recipe.optim.warmup_ratio = 0;
  recipe.optim.clip_grad_norm = 0;
  EXPECT_EQ(parts(go(recipe)), (std::vector<std::string>{"core", "lft train"})) << text();
}

TEST_F(BareTest, APrecisionThatOverflowsIsNamedAndTheRestTriedWithoutIt) {
  test::change_model(run_,
                     [](test::StoredTensors& tensors) { test::scale_mlp(tensors, 0, 0x1p20f); });
  Recipe recipe = full_recipe();
  recipe.model.base_dtype = "fp32";
  recipe.precision.compute = "fp16";
  const BareReport report = go(recipe);
  EXPECT_EQ(report.causes(), std::vector<std::string>{"precision"}) << text();
  EXPECT_EQ(trial(report, "precision").fault, "step 1: the loss is not finite");
  EXPECT_EQ(trial(report, "dropout").fault, "");
  EXPECT_EQ(lines_.back(), "found      precision");
  EXPECT_EQ(parts(report).back(), "activation checkpointing");  // lft train would only fail again
}

TEST_F(BareTest, AClippingThatLeavesNothingIsNamed) {
  Recipe recipe = full_recipe();
  recipe.optim.clip_grad_norm = 1e-14;  // far below Adam's eps
  const BareReport report = go(recipe);
  EXPECT_EQ(report.causes(), std::vector<std::string>{"clipping"}) << text();
}

TEST_F(BareTest, ADropoutThatLeavesNothingIsNamed) {
  Recipe recipe = full_recipe();
  recipe.full.clear();
  recipe.lora.dropout = 0.9999;
  const BareReport report = go(recipe);
  EXPECT_EQ(report.causes(), std::vector<std::string>{"dropout"}) << text();
}

struct PlantedPart {
  const char* name;
  bool (*put_back)(const Recipe&);
};
class BareParts : public BareTest, public ::testing::WithParamInterface<PlantedPart> {};

TEST_P(BareParts, AFaultThatComesWithAPartIsThatParts) {
  bool planted = false;  // the given model is trained with the part
  const TrialHooks hooks = {
      .built = [&](lft::train::Run& run) { planted = GetParam().put_back(run.recipe); },
      .gradients_ready =
          [&](int64_t, Optimizer& optimizer) {
            for (at::Tensor gradient : optimizer.gradients()) {
              if (planted && gradient.defined()) gradient.mul_(-1);  // gradient ascent
            }
          }};
  const BareReport report = go(full_recipe(), hooks);
  EXPECT_EQ(report.causes(), std::vector<std::string>{GetParam().name}) << text();
  EXPECT_NE(trial(report, GetParam().name).fault.find("the loss does not fall"), std::string::npos)
      << text();
}

INSTANTIATE_TEST_SUITE_P(
    All, BareParts,
    ::testing::Values(
        PlantedPart{"precision",
                    [](const Recipe& recipe) { return recipe.precision.compute == "bf16"; }},
        PlantedPart{"clipping",
                    [](const Recipe& recipe) { return recipe.optim.clip_grad_norm > 0; }},
        PlantedPart{"schedule",
                    [](const Recipe& recipe) { return recipe.optim.schedule == "cosine"; }},
        PlantedPart{"weight decay",
                    [](const Recipe& recipe) { return recipe.optim.weight_decay > 0; }},
        PlantedPart{"dropout", [](const Recipe& recipe) { return recipe.lora.dropout > 0; }},
        PlantedPart{"accumulation",
                    [](const Recipe& recipe) { return recipe.train.grad_accum > 1; }},
        PlantedPart{"activation checkpointing", [](const Recipe& recipe) {
                      return recipe.train.activation_checkpointing != "none";
                    }}));

/// On the quickstart, whose projector compensates for its adapters.
TEST_F(BareTest, AnOddSettingIsNamedWhereItHarmsWithAnotherPartOnly) {
  const std::string from = LFT_SOURCE_DIR "/recipes/quickstart/";
  const auto with = [&](const std::string& setting) {
    return read_recipe(LFT_SOURCE_DIR "/recipes/quickstart.yaml",
                       {"model.path=" + from + "model", "data.train=" + from + "digits/train.json",
                        "data.image_root=" + from + "digits/images", "data.eval=null",
                        "output_dir=" + run_.dir().file("out"), "train.batch_size=8", setting});
  };
  const BareReport harmed = go(with("optim.eps=1"));
  EXPECT_EQ(harmed.causes(), std::vector<std::string>{"eps of the optimizer"}) << text();
  const BareReport slower = go(with("lora.dropout=0.99"));
  EXPECT_NE(text().find("lora.dropout 0.0 -> 0.99 is unusual: without it the loss falls"),
            std::string::npos)
      << text();
  EXPECT_TRUE(slower.healthy());
}

TEST_F(BareTest, ACoreThatFailsIsNoPartsFault) {
  Recipe recipe = full_recipe();
  recipe.optim.lr = 1e-9;
  const BareReport slow = go(recipe);
  EXPECT_EQ(slow.causes(), std::vector<std::string>{"core"}) << text();
  EXPECT_NE(slow.trials.front().fault.find("the loss hardly falls"), std::string::npos) << text();
  EXPECT_EQ(parts(slow), (std::vector<std::string>{"core", "learning rate"})) << text();
  EXPECT_NE(lines_.back().find("learning rate too low"), std::string::npos) << text();

  const std::string b = "language_model.model.layers.0.mlp.up_proj.lora_B.weight";
  const auto freeze = [&](int64_t, Optimizer& optimizer) {
    for (Slot& slot : optimizer.slots()) {
      if (slot.param.name == b) slot.param.tensor.mutable_grad().zero_();
    }
  };
  const BareReport frozen = go(full_recipe(), {.built = {}, .gradients_ready = freeze});
  EXPECT_EQ(frozen.trials.front().fault,
            "1 of 16 trained modules did not move: language_model.model.layers.0.mlp.up_proj")
      << text();
}

TEST_F(BareTest, AFaultInWhatOnlyTrainDoesIsItsOwn) {
  // lft train starts its steps at 1 like every trial; only it saves a checkpoint
  // before them.
  int started = 0;
  const auto spoil = [&](int64_t step, Optimizer& optimizer) {
    started += step == 1 ? 1 : 0;
    if (started == 5 && step == 4)
      optimizer.slots()[1].param.tensor.mutable_grad().view(-1)[0] =
          std::numeric_limits<float>::infinity();
  };
  Recipe recipe = run_.recipe("out");  // the core, clipping, schedule, dropout, lft train
  const BareReport report = go(recipe, {.built = {}, .gradients_ready = spoil});
  EXPECT_EQ(report.causes(), std::vector<std::string>{"lft train"}) << text();
  EXPECT_NE(report.trials.back().fault.find("a gradient is not finite"), std::string::npos)
      << text();
  EXPECT_FALSE(fs::exists(run_.dir().file("out")));
}

TEST_F(BareTest, AFolderThatIsThereIsNotDeleted) {
  const std::string kept = run_.dir().write("out/debug-bare/notes.txt", "mine");
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "is there already", go(run_.recipe("out")));
  EXPECT_TRUE(fs::exists(kept));
}

}  // namespace
}  // namespace lft::test::bare_test
