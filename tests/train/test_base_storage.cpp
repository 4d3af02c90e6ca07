// How the frozen weights come to be: in NF4 (model.base_dtype), or drawn instead of read (model.init).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "models/lora/inject.h"
#include "src/train/setup.h"
#include "src/train/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft {
namespace {

namespace fs = std::filesystem;

Recipe nf4_recipe(const test::TinyRun& run, const std::string& out) {
  Recipe recipe = run.recipe(out);
  recipe.data.eval.clear();
  recipe.model.base_dtype = "nf4";
  recipe.checkpoint = {.every_steps = 1, .keep = 100, .at_step_zero = true};
  return recipe;
}

TEST(Nf4Run, OnlyTheDecodersLinearLayersAreCodes) {
  const test::TinyRun run;
  const RunInputs inputs = open_inputs(nf4_recipe(run, "out"));
  RunModel model = build_model(inputs, nullptr);
  int codes = 0;
  for (const LinearSite& site : linear_sites(*model.model)) {
    const bool decoder = site.name.find(".layers.") != std::string::npos && site.scope == "llm";
    EXPECT_EQ(static_cast<bool>(site.layer->stored().nf4()), decoder) << site.name;
    if (!decoder) EXPECT_EQ(site.layer->weight.scalar_type(), site.scope == "projector" ? at::kFloat : at::kBFloat16) << site.name;
    codes += decoder;
  }
  EXPECT_EQ(codes, 14);  // two layers of seven
}

TEST(Nf4Run, LearnsAndResumesBitForBit) {
  const test::TinyRun run;
  Recipe whole = nf4_recipe(run, "whole");
  whole.train.max_steps = 20;
  ASSERT_EQ(train(whole), 0);
  const std::vector<Json> steps = test::step_lines(whole.output_dir);
  EXPECT_LT(steps.back()["loss"].get<double>(), 0.7 * steps.front()["loss"].get<double>());
  Recipe resumed = whole;
  resumed.output_dir = run.dir().file("resumed");
  fs::copy(whole.output_dir, resumed.output_dir, fs::copy_options::recursive);
  fs::remove_all(resumed.output_dir + "/adapter");
  for (int step = 12; step <= 20; ++step) fs::remove_all(resumed.output_dir + "/checkpoints/step-" + std::to_string(step));
  ASSERT_EQ(train(resumed, {.resume = true}), 0);
  EXPECT_TRUE(test::run_bytes(resumed.output_dir, 20) == test::run_bytes(whole.output_dir, 20));
}

TEST(Nf4Run, CodesCannotBeTrainedWhole) {
  const test::TinyRun run;
  for (const char* scope : {"llm", "all"}) {
    Recipe recipe = nf4_recipe(run, "out");
    recipe.full = {scope};
    recipe.lora.targets.clear();
    EXPECT_LFT_ERROR(ErrorKind::kUsage, "weights stored in nf4 cannot be trained", open_inputs(recipe));
  }
}

TEST(RandomWeights, NeedNoWeightFileAndAreAFunctionOfTheSeed) {
  const test::TinyRun run;
  fs::remove(run.model() + "/model.safetensors");
  Recipe first = run.recipe("a"), second = run.recipe("b"), third = run.recipe("c");
  EXPECT_THROW(open_inputs(first), Error);  // the checkpoint is not there
  std::vector<double> losses;
  for (Recipe* recipe : {&first, &second, &third}) {
    recipe->model.init = "random";
    recipe->data.eval.clear();
    recipe->train.max_steps = 2;
    if (recipe == &third) recipe->train.seed = 7;
    ASSERT_EQ(train(*recipe), 0);
    losses.push_back(test::step_lines(recipe->output_dir).front()["loss"]);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NE(losses[0], losses[2]);
  EXPECT_NEAR(losses[0], std::log(264.0), 0.2);  // of 264 tokens none is likelier than another; logits have a deviation of about 0.1
}

}  // namespace
}  // namespace lft
