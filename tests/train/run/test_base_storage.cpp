// Storage of the frozen weights: NF4 or FP8 (model.base_dtype), or random instead of read
// (model.init).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/inputs/run_model.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/run/run.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "support/llava.h"
#include "train/copy_killed.h"
#include "train/names.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft::base_storage_test {
using namespace lft::test;
namespace {

namespace fs = std::filesystem;

/// Quantized, in the precision that has native FP8 products.
Recipe coded_recipe(const test::TinyRun& run, const std::string& out,
                    const std::string& base_dtype) {
  Recipe recipe = run.recipe(out);
  recipe.data.eval.clear();
  recipe.model.base_dtype = base_dtype;
  recipe.precision.compute = base_dtype == "fp8" ? "bf16" : "fp32";
  recipe.checkpoint = {.every_steps = 1, .keep = 100, .at_step_zero = true};
  return recipe;
}

class CodedRun : public ::testing::TestWithParam<const char*> {};

TEST_P(CodedRun, OnlyTheDecodersLinearLayersAreCodes) {
  const test::TinyRun run;
  const RunInputs inputs = open_inputs(coded_recipe(run, "out", GetParam()));
  RunModel model = build_model(inputs);
  int codes = 0;
  for (const LinearSite& site : linear_sites(*model.model)) {
    const bool decoder = site.name.find(".layers.") != std::string::npos && site.scope == "llm";
    EXPECT_EQ(site.layer->stored().kind(), decoder ? base_storage(GetParam()) : BaseStorage::kDense)
        << site.name;
    if (!decoder) {
      EXPECT_EQ(site.layer->weight.scalar_type(),
                site.scope == "projector" ? at::kFloat : at::kBFloat16)
          << site.name;
    }
    codes += decoder;
  }
  EXPECT_EQ(codes, 14);  // two layers of seven
}

TEST_P(CodedRun, LearnsRepeatsAndResumesBitForBit) {
  const test::TinyRun run;
  Recipe whole = coded_recipe(run, "whole", GetParam());
  whole.train.max_steps = 20;
  ASSERT_EQ(train::train(whole), 0);
  const std::vector<Json> steps = test::step_lines(whole.output_dir);
  EXPECT_LT(steps.back()["loss"].get<double>(), 0.7 * steps.front()["loss"].get<double>());
  Recipe again = whole;
  again.output_dir = run.dir().file("again");
  ASSERT_EQ(train::train(again), 0);
  EXPECT_TRUE(test::run_bytes(again.output_dir, 20) == test::run_bytes(whole.output_dir, 20));
  Recipe resumed = whole;
  resumed.output_dir = run.dir().file("resumed");
  test::copy_killed(whole.output_dir, resumed.output_dir, /*step=*/11);
  ASSERT_EQ(train::train(resumed, {.resume = true}), 0);
  EXPECT_TRUE(test::run_bytes(resumed.output_dir, 20) == test::run_bytes(whole.output_dir, 20));
}

TEST_P(CodedRun, CodesCannotBeTrainedWhole) {
  const test::TinyRun run;
  for (const char* scope : {"llm", "all"}) {
    Recipe recipe = coded_recipe(run, "out", GetParam());
    recipe.full = {scope};
    recipe.lora.targets.clear();
    EXPECT_LFT_ERROR(ErrorKind::kUsage,
                     "weights stored in " + std::string(GetParam()) + " cannot be trained",
                     open_inputs(recipe));
  }
}

TEST_P(CodedRun, AVariantThatChangesTheWeightsIsRefused) {
  const test::TinyRun run;
  Recipe recipe = coded_recipe(run, "out", GetParam());
  recipe.lora.variant = "pissa";
  recipe.lora.rank = 2;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "changes the weights of its layers, and these are quantized",
                   open_inputs(recipe));
  recipe.lora.targets = {"projector:all-linear"};
  EXPECT_NO_THROW(open_inputs(recipe));
}

TEST_P(CodedRun, TheNoticeAndThePlanSayWhatTheWeightsAreHeldIn) {
  const test::TinyRun run;
  const RunInputs inputs = open_inputs(coded_recipe(run, "out", GetParam()));
  const std::string codes = GetParam();
  const auto told = [&](const std::string& piece) {
    return std::any_of(
        inputs.notices.begin(), inputs.notices.end(),
        [&](const std::string& notice) { return notice.find(piece) != std::string::npos; });
  };
  EXPECT_TRUE(told(
      "the frozen weights are stored in fp32 and loaded as bf16, its decoder's linear layers in " +
      codes));
  EXPECT_EQ(told("this device has no FP8 products"), codes == "fp8");
  EXPECT_NE(describe_plan(inputs, build_model(inputs))[0].find("frozen weights in " + codes +
                                                               " and bf16"),
            std::string::npos);
}

TEST_P(CodedRun, WeightsCanBeDrawn) {
  const test::TinyRun run;
  Recipe recipe = coded_recipe(run, "out", GetParam());
  recipe.model.init = "random";
  recipe.train.max_steps = 2;
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_NEAR(test::step_lines(recipe.output_dir).front()["loss"].get<double>(), std::log(264.0),
              0.2);  // as below
}

INSTANTIATE_TEST_SUITE_P(All, CodedRun, ::testing::Values("nf4", "fp8"));

TEST(Fp8Run, GoesOnInFp32BehindABadGradient) {
  const test::TinyRun run;
  Recipe recipe = coded_recipe(run, "out", "fp8");
  const auto spoil = [](int64_t step, Optimizer& optimizer) {
    if (step == 3) optimizer.slots()[1].param.tensor.mutable_grad().fill_(std::nan(""));
  };
  ASSERT_EQ(train::train(recipe, {.gradients_ready = spoil}), 0);
  ASSERT_EQ(test::events(recipe.output_dir, "fp32_recovery").size(), 1u);
  for (const Json& step : test::step_lines(recipe.output_dir)) {
    EXPECT_EQ(step["precision"], step["step"].get<int>() < 3 ? "bf16" : "fp32");
    EXPECT_TRUE(std::isfinite(step["loss"].get<double>()));
  }
}

/// Gradients that overflow FP16 in the backward pass stay non-finite through the quantized layers.
TEST(Fp8Run, AnOverflowIsSeenAndTheStepSkipped) {
  const test::TinyRun run;
  Recipe recipe = coded_recipe(run, "out", "fp8");
  recipe.precision.compute = "fp16";
  recipe.precision.loss_scale.init = 0x1p30;
  recipe.train.max_steps = 30;
  ASSERT_EQ(train::train(recipe), 0);
  const std::vector<Json> steps = test::step_lines(recipe.output_dir);
  EXPECT_GT(test::events(recipe.output_dir, "step_skipped").size(), 5u);
  ASSERT_FALSE(steps.empty());
  for (const Json& step : steps) EXPECT_TRUE(std::isfinite(step["grad_norm"].get<double>()));
  EXPECT_LT(steps.back()["loss_scale"].get<double>(), 0x1p30);
}

TEST(Fp8Run, ALayerOfAnotherShapeIsNamed) {
  const test::TinyRun run;
  test::write_tiny_llava(
      run.model(), {.image_token = 260, .vocab = 264, .max_positions = 512, .intermediate = 40});
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "FP8 products cannot take",
                   open_inputs(coded_recipe(run, "out", "fp8")));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "language_model.model.layers.0.mlp.gate_proj",
                   open_inputs(coded_recipe(run, "out", "fp8")));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "40 outputs, 32 inputs",
                   open_inputs(coded_recipe(run, "out", "fp8")));
  EXPECT_NO_THROW(open_inputs(coded_recipe(run, "out", "nf4")));
}

/// A checkpoint or an adapter belongs to the model files; the storage dtype of the weights affects
/// their bytes and nothing else.
TEST(Fp16Checkpoint, IsTheSameBaseHoweverItIsHeld) {
  const test::TinyRun run;
  test::write_tiny_llava(
      run.model(), {.dtype = DType::kF16, .image_token = 260, .vocab = 264, .max_positions = 512});
  std::map<std::string, std::pair<at::ScalarType, double>> expected = {{"auto", {at::kBFloat16, 2}},
                                                                       {"bf16", {at::kBFloat16, 2}},
                                                                       {"fp16", {at::kHalf, 2}},
                                                                       {"fp32", {at::kFloat, 4}}};
  std::set<std::string> bases;
  std::map<double, double> bytes;
  for (const auto& [asked, held] : expected) {
    Recipe recipe = run.recipe(asked);
    recipe.data.eval.clear();
    recipe.model.base_dtype = asked;
    recipe.precision.compute = "bf16";
    RunInputs inputs = open_inputs(recipe);
    EXPECT_EQ(inputs.base_dtype, held.first) << asked;
    bases.insert(run_identity(inputs, {})["base"].get<std::string>());
    const MemoryPlan plan =
        plan_memory(inputs, worst_micro_batch(inputs, sample_lengths(inputs.data)));
    EXPECT_EQ(plan.parts.at(0).name, "frozen weights");
    bytes[held.second] = plan.parts.at(0).bytes;
    const RunModel model = build_model(inputs);
    double seen = 0;
    for (const at::Tensor& parameter : model.model->parameters())
      seen += parameter.requires_grad() ? 0.0 : parameter.nbytes();
    EXPECT_EQ(plan.parts.at(0).bytes, seen) << asked;
  }
  EXPECT_EQ(bases.size(), 1u);
  EXPECT_EQ(bytes.at(4), 2 * bytes.at(2));
}

TEST(ShardedBase, IsNotTrainedWholeNorChanged) {
  const test::TinyRun run;
  for (const char* scope : {"llm", "all"}) {
    Recipe recipe = run.recipe("out");
    recipe.train.shard = "base";
    recipe.full = {scope};
    recipe.lora.targets.clear();
    EXPECT_LFT_ERROR(ErrorKind::kUsage, "a sharded base cannot be trained", open_inputs(recipe));
    recipe.full = {"projector", "vision"};
    EXPECT_NO_THROW(open_inputs(recipe));
  }
  Recipe recipe = run.recipe("out");
  recipe.train.shard = "base";
  recipe.lora.variant = "pissa";
  recipe.lora.rank = 2;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "changes the weights of its layers, and these are sharded",
                   open_inputs(recipe));
  recipe.lora.targets = {"projector:all-linear"};
  EXPECT_NO_THROW(open_inputs(recipe));
}

/// Memory of the decoder layers: the share of one process, and two layers.
TEST(ShardedBase, IsWhatThePlanCounts) {
  const test::TinyRun run;
  for (const std::string base_dtype : {"fp32", "bf16", "nf4"}) {
    Recipe recipe = run.recipe("out");
    recipe.model.base_dtype = base_dtype;
    RunInputs inputs = open_inputs(recipe);
    const MicroBatchShape worst = worst_micro_batch(inputs, sample_lengths(inputs.data));
    const auto bytes = [&](int64_t holders, const std::string& part) {
      inputs.shard_group_size = holders;
      double sum = 0;
      for (const MemoryPart& each : plan_memory(inputs, worst).parts)
        sum += each.name == part ? each.bytes : 0;
      return sum;
    };
    double layers = 0;
    const RunModel model = build_model(inputs);
    for (const LinearSite& site : linear_sites(*model.model)) {
      if (site.scope != "llm" || site.name.find(".layers.") == std::string::npos) continue;
      if (base_dtype != "nf4") layers += static_cast<double>(site.layer->weight.nbytes());
      for (const at::Tensor& part : site.layer->buffers())
        layers += static_cast<double>(part.nbytes());
    }
    EXPECT_EQ(bytes(1, "layers gathered of slices"), 0);
    // The count of codes ignores rounding up of blocks: a byte per weight and a number.
    const double rounded = base_dtype == "nf4" ? 14 * 8 : 0;
    for (const int64_t holders : {2, 4}) {
      const double slices = layers / static_cast<double>(holders);
      EXPECT_NEAR(bytes(1, "frozen weights") - bytes(holders, "frozen weights"), layers - slices,
                  rounded);
      EXPECT_NEAR(bytes(holders, "layers gathered of slices"), layers, rounded);  // two layers
    }
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
    ASSERT_EQ(train::train(*recipe), 0);
    losses.push_back(test::step_lines(recipe->output_dir).front()["loss"]);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NE(losses[0], losses[2]);
  EXPECT_NEAR(
      losses[0], std::log(264.0),
      0.2);  // no token of 264 is more likely than another; logits have a deviation of about 0.1
}

}  // namespace
}  // namespace lft::base_storage_test
