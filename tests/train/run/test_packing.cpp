// train.max_tokens_per_step: the same global batches without padding, split by tokens. Losses and
// weights equal the padded run's, resume is bit for bit, and the budget is kept.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "src/checkpoint/tensor_file.h"
#include "src/data/batch.h"
#include "src/data/loader.h"
#include "src/train/check/check.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/copy_killed.h"
#include "train/pass_sizes.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft::packing_test {
using namespace lft::checkpoint;
using namespace lft::data;
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

/// Rows of three lengths: answers "red", "green", "blue". About 45 positions each, so that three
/// fit a budget of 140.
Recipe packed_recipe(const test::TinyRun& run, const std::string& out, int64_t budget) {
  Recipe recipe = run.recipe(out);
  recipe.data.eval.clear();
  recipe.data.max_tokens = 64;
  recipe.lora.dropout = 0;
  recipe.optim.lr = 1e-3;
  recipe.train.grad_accum = 2;
  recipe.train.max_tokens_per_step = budget;
  recipe.checkpoint = {.every_steps = 1, .keep = 100, .at_step_zero = true};
  return recipe;
}

/// Float32 sums in another order: a relative 1e-5 per step is a hundred units in the last place;
/// six AdamW steps of 1e-3 move a weight by at most 6e-3, and where a gradient is near eps the
/// direction may turn, so weights agree within that only overall.
TEST(Packing, LossesAndWeightsAreThoseOfPaddedBatches) {
  const test::TinyRun run;
  const Recipe padded = packed_recipe(run, "padded", 0);
  ASSERT_EQ(train::train(padded), 0);
  const std::vector<Json> want = test::step_lines(padded.output_dir);
  for (const int64_t budget : {64, 140, 4096}) {
    const Recipe packed = packed_recipe(run, "packed" + std::to_string(budget), budget);
    ASSERT_EQ(train::train(packed), 0);
    const std::vector<Json> got = test::step_lines(packed.output_dir);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const double loss = want[i]["loss"];
      EXPECT_NEAR(got[i]["loss"].get<double>(), loss, 2e-5 * loss * static_cast<double>(i + 1))
          << budget << " step " << i + 1;
      EXPECT_EQ(got[i]["tokens"], want[i]["tokens"]);
      EXPECT_EQ(got[i]["supervised_tokens"], want[i]["supervised_tokens"]);
    }
    const std::string file = "/checkpoints/step-6/trainables.safetensors";
    const TensorMap a = read_tensor_file(padded.output_dir + file),
                    b = read_tensor_file(packed.output_dir + file);
    double difference = 0, size = 0;
    for (const auto& [name, tensor] : a) {
      difference += (tensor - b.at(name)).square().sum().item<double>();
      size += tensor.square().sum().item<double>();
    }
    EXPECT_LT(std::sqrt(difference / size), 1e-4) << budget;
  }
}

TEST(Packing, AResumedRunIsTheRunThatWasNeverStopped) {
  const test::TinyRun run(/*rows=*/10);
  Recipe whole = packed_recipe(run, "whole", 140);
  whole.lora.dropout = 0.25;
  ASSERT_EQ(train::train(whole), 0);
  Recipe resumed = whole;
  resumed.output_dir = run.dir().file("resumed");
  test::copy_killed(whole.output_dir, resumed.output_dir, /*step=*/3);
  resumed.data.workers = 3;
  ASSERT_EQ(train::train(resumed, {.resume = true}), 0);
  EXPECT_TRUE(test::run_bytes(resumed.output_dir, 6) == test::run_bytes(whole.output_dir, 6));
}

TEST(Packing, NoForwardPassExceedsTheBudgetAndNoSampleIsLost) {
  const test::TinyRun run(/*rows=*/11);
  const Recipe recipe = packed_recipe(run, "out", 140);
  const RunInputs inputs = open_inputs(recipe);
  const std::unique_ptr<Loader> loader = start_loader(inputs, 0);
  for (int64_t step = 0; step < 2; ++step) {
    const StepSamples samples = loader->next();
    size_t count = 0;
    for (size_t m = 0; m < samples.micro.size(); ++m) {
      int64_t tokens = 0;
      for (const Sample& sample : samples.micro[m])
        tokens += static_cast<int64_t>(sample.input_ids.size());
      EXPECT_LE(tokens, 140);
      EXPECT_EQ(pack(samples.micro[m], inputs.data.encode, at::kCPU).input_ids_bt.size(1), tokens);
      if (m + 1 < samples.micro.size()) {
        EXPECT_GT(tokens + static_cast<int64_t>(samples.micro[m + 1][0].input_ids.size()), 140);
      }
      count += samples.micro[m].size();
    }
    EXPECT_EQ(count, step == 0 ? 8u : 3u);
  }
}

/// Trainability check, rehearsal, steps, the checkpoints' probe, evaluation and the answers of the
/// report, over rows of mixed lengths.
TEST(Packing, NoPassOfAWholeRunExceedsTheBudget) {
  const test::TinyRun run(/*rows=*/12);
  nlohmann::json rows = nlohmann::json::parse(test::slurp(run.dir().file("rows.json")));
  for (const int row : {1, 6}) rows[row]["conversations"][1]["value"] = std::string(150, 'a');
  for (const int row : {3, 9})
    rows[row]["conversations"][0]["value"] = "<image>\n" + std::string(100, 'q');
  run.dir().write("rows.json", rows.dump());
  Recipe recipe = packed_recipe(run, "out", 260);
  recipe.data.eval = recipe.data.train.path;
  recipe.data.max_tokens = 250;
  recipe.train.batch_size = 8;
  recipe.train.grad_accum = 1;
  recipe.train.eval_every_steps = 2;
  recipe.train.max_steps = 4;
  recipe.log.layer_activation_norms_every = 0;  // its observer would replace this one
  test::PassSizes sizes;
  const ObserveCalls observe(sizes);
  ASSERT_EQ(check(recipe), 0);
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_LE(sizes.largest, 260);
  EXPECT_GT(sizes.passes, 40);
  EXPECT_EQ(test::events(recipe.output_dir, "eval").size(), 2u);

  Recipe padded = recipe;
  padded.output_dir = run.dir().file("padded");
  padded.train.max_tokens_per_step = 0;
  ASSERT_EQ(train::train(padded), 0);
  EXPECT_GT(sizes.largest, 1000);
  // After four steps of 1e-3 as in LossesAndWeightsAreThoseOfPaddedBatches.
  const double want = test::events(padded.output_dir, "eval").back()["eval_loss"];
  EXPECT_NEAR(test::events(recipe.output_dir, "eval").back()["eval_loss"].get<double>(), want,
              1e-4 * want);
}

TEST(Packing, ABudgetBelowTheLongestSampleIsRefused) {
  const test::TinyRun run;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "train.max_tokens_per_step is below the longest sample",
                   open_inputs(packed_recipe(run, "out", 63)));
}

}  // namespace
}  // namespace lft::packing_test
