// Messages and refusals before a run's first step: truncated rows, memory bounded
// by the rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "src/base/text.h"
#include "src/io/png_write.h"
#include "src/train/inputs/preflight.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace lft::preflight_test {
using namespace lft::data;
using namespace lft::recipe;
using namespace lft::train;
namespace {

TEST(Preflight, RowsWhoseEndTheLimitCutsAreCounted) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  RunInputs whole = open_inputs(recipe);
  EXPECT_EQ(join(check_samples(whole)).find("data.max_tokens"), std::string::npos);
  // The longest reply, "green", loses its end and no other reply does.
  int32_t longest = 0;
  int64_t with_it = 0;
  for (const SampleLength& each : sample_lengths(whole.data))
    longest = std::max(longest, each.tokens);
  for (const SampleLength& each : sample_lengths(whole.data)) with_it += each.tokens == longest;
  recipe.data.max_tokens = longest - 1;
  RunInputs cut = open_inputs(recipe);
  EXPECT_NE(join(check_samples(cut))
                .find("data.train: " + std::to_string(with_it) +
                      " of 12 samples lose supervised tokens to "
                      "data.max_tokens = " +
                      std::to_string(longest - 1)),
            std::string::npos)
      << join(check_samples(cut));
}

/// Training and evaluations share one limit, which the largest image of either fits into.
TEST(Preflight, ImagesToEvaluateOnBetweenStepsAreReadWithinTheSameLimit) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");  // evaluates on its training rows
  const auto reading = [&](int64_t every) {
    recipe.train.eval_every_steps = every;
    RunInputs inputs = open_inputs(recipe);
    check_samples(inputs);
    return plan_memory(inputs, worst_micro_batch(inputs, sample_lengths(inputs.data)))
        .bytes_of(kImagesRead);
  };
  const double at_the_end = reading(0);
  EXPECT_GT(at_the_end, 3 * 31 * 31);  // the square of the largest one, 31 x 18
  EXPECT_EQ(reading(2), at_the_end);
  const io::RgbImage large{200, 90, io::Pixels(3 * 200 * 90, 77)};
  run.dir().write("images/large.png", io::png_file(large));
  io::Json rows = io::Json::parse(test::slurp(run.dir().file("rows.json")));
  for (io::Json& row : rows) {
    if (row.contains("image")) row["image"] = "large.png";
  }
  recipe.data.eval = run.dir().write("large.json", rows.dump());
  EXPECT_EQ(reading(0), at_the_end);
  EXPECT_GT(reading(2), 3 * 200 * 200);
}

/// 65,536 samples a step are at most the 12 that there are.
TEST(Preflight, ABatchLargerThanTheDataTakesTheMemoryOfTheData) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  const auto planned = [&](int64_t batch_size) {
    recipe.train.batch_size = batch_size;
    RunInputs inputs = open_inputs(recipe);
    const std::vector<SampleLength>& lengths = sample_lengths(inputs.data);
    const MemoryPlan plan = plan_memory(inputs, worst_micro_batch(inputs, lengths));
    for (const Mitigation& each : mitigations(inputs, lengths, plan)) {
      const size_t accum = each.change.find("grad_accum=");
      if (accum != std::string::npos) {
        EXPECT_LE(std::stoll(each.change.substr(accum + 11)), kMostInAStep) << each.change;
      }
    }
    return plan.peak;
  };
  const double all = planned(12);
  EXPECT_EQ(planned(65536), all);
  recipe.train.grad_accum = 65536;
  EXPECT_LT(planned(65536), 1.01 * all);
}

TEST(Preflight, GradAccumAutoMakesTheGlobalBatchAsFarAsTheRowsGo) {
  const auto settled = [](int64_t batch_size, int64_t global_batch, int64_t rows) {
    Recipe recipe;
    recipe.train.batch_size = batch_size;
    recipe.train.global_batch = global_batch;
    settle_accumulation(recipe, rows);
    EXPECT_EQ(recipe.train.global_batch, global_batch) << "as it was asked for";
    return recipe.train.grad_accum;
  };
  EXPECT_EQ(settled(16, 0, 1'000'000), 1);    // not requested
  EXPECT_EQ(settled(16, 128, 1'000'000), 8);  // 128 / 16
  EXPECT_EQ(settled(16, 128, 4096), 8);       // 32 steps of 128
  EXPECT_EQ(settled(16, 128, 4095), 7);       // 32 steps of 127, in whole passes
  EXPECT_EQ(settled(16, 128, 160), 1);
  EXPECT_EQ(settled(16, 100, 1'000'000), 6);
  Recipe given;
  given.train.grad_accum = 5;
  settle_accumulation(given, 160);
  EXPECT_EQ(given.train.grad_accum, 5);
}

TEST(Preflight, AutoIsSettledBeforeTheRunAndKeptByItsResolvedRecipe) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.train.batch_size = 1;
  recipe.train.grad_accum = 0;
  recipe.train.global_batch = 4;
  recipe.train.max_steps = 0;
  const RunInputs inputs = open_inputs(recipe);  // 12 rows: never 32 steps
  EXPECT_EQ(inputs.recipe.train.grad_accum, 1);
  EXPECT_EQ(inputs.total_steps, 12);
  const std::string dump = dump_recipe(inputs.recipe);
  EXPECT_NE(dump.find("grad_accum: auto\n  global_batch: 4\n"), std::string::npos) << dump;
  const RunInputs again = open_inputs(parse_recipe(dump, "dump"));
  EXPECT_EQ(dump_recipe(again.recipe), dump);
  EXPECT_EQ(again.recipe.train.grad_accum, 1);
}

/// Both numbers, and the reason; a run resumes with its original recipe.
TEST(Preflight, AGlobalBatchThatIsLoweredIsTold) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.train.batch_size = 1;
  recipe.train.grad_accum = 0;
  recipe.train.global_batch = 4;
  EXPECT_NE(judge_global_batch(open_inputs(recipe))
                .find("lowered from 4 to 1 sample a step, so that an epoch of 12 rows"),
            std::string::npos)
      << judge_global_batch(open_inputs(recipe));
  recipe.train.max_steps = 2;
  ASSERT_EQ(train::train(recipe), 0);
  recipe.train.max_steps = 3;
  EXPECT_EQ(train::train(recipe, {.resume = true}), 0);
  recipe.train.global_batch = 5;
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "train.global_batch: stored 4, now 5",
                   train::train(recipe, {.resume = true}));
  RunSettings many;
  many.recipe = recipe;
  many.recipe.train.grad_accum = 0;
  many.rows = 100'000;
  many.recipe.train.batch_size = 16;
  many.recipe.train.global_batch = 100;
  settle_accumulation(many.recipe, many.rows);
  EXPECT_NE(judge_global_batch(many).find("from 100 to 96 samples a step, whole passes of "
                                          "train.batch_size: 16"),
            std::string::npos)
      << judge_global_batch(many);
  many.recipe.train.global_batch = 96;
  EXPECT_EQ(judge_global_batch(many), "");
}

TEST(Preflight, BlocksThatShuffleNothingAreTold) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  const auto told = [&] {
    return join(open_inputs(recipe).notices)
               .find(
                   "12 rows are less than two blocks of 1024: "
                   "nothing is shuffled") != std::string::npos;
  };
  EXPECT_FALSE(told());
  recipe.data.shuffle.blocks = true;
  EXPECT_TRUE(told());
  recipe.data.group_by_length = true;  // whole batches are shuffled
  EXPECT_FALSE(told());
}

/// All answers are masked, or all are truncated; without worst_first too, which measures nothing.
TEST(Preflight, HeldOutRowsWithoutASupervisedTokenAreRefused) {
  const test::TinyRun run;
  nlohmann::json rows = nlohmann::json::parse(test::slurp(run.dir().file("rows.json")));
  Recipe recipe = run.recipe("out");
  recipe.train.worst_first = false;
  recipe.train.eval_every_steps = 1;
  recipe.train.keep_best = "exact";
  for (size_t i = 1; i < rows.size(); ++i) rows[i]["conversations"][1]["loss"] = false;
  recipe.data.eval = run.dir().write("one.json", rows.dump());
  RunInputs one = open_inputs(recipe);
  EXPECT_NO_THROW(check_held_out(one));
  EXPECT_NE(join(check_samples(one)).find("data.eval: 11 of 12 samples have no supervised token"),
            std::string::npos)
      << join(check_samples(one));
  rows[0]["conversations"][1]["loss"] = false;
  recipe.data.eval = run.dir().write("none.json", rows.dump());
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no held-out row has a supervised token",
                   train::train(recipe));
  EXPECT_FALSE(std::filesystem::exists(recipe.output_dir));
  rows = nlohmann::json::parse(test::slurp(run.dir().file("rows.json")));
  for (nlohmann::json& row : rows)
    row["conversations"][0]["value"] = "<image>\n" + std::string(200, 'w');
  recipe.data.eval = run.dir().write("long.json", rows.dump());
  recipe.data.max_tokens = 150;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "an answer within data.max_tokens = 150",
                   check_held_out(open_inputs(recipe)));
}

/// The five-minute recipe on 160 rows: two steps, one of them at a rate of 0.
TEST(Preflight, StepsThatTeachNextToNothingAreTold) {
  const test::TinyRun run;
  const auto said = [&](int64_t steps, double warmup) {
    Recipe recipe = run.recipe("out");
    recipe.train.max_steps = steps;
    recipe.optim.warmup_ratio = warmup;
    recipe.optim.schedule = "constant";
    return judge_steps(open_inputs(recipe));
  };
  EXPECT_NE(said(2, 0.03).find("2 steps of"), std::string::npos) << said(2, 0.03);
  EXPECT_NE(said(2, 0.03).find("1 of them warm-up from 0, equal 1 steps"), std::string::npos)
      << said(2, 0.03);
  EXPECT_NE(said(2, 0.03).find("raise train.max_steps"), std::string::npos);
  EXPECT_NE(said(12, 1).find("lower optim.warmup_ratio"), std::string::npos) << said(12, 1);
  EXPECT_EQ(said(8, 0), "");
  EXPECT_NE(said(7, 0), "");
  Recipe epochs = run.recipe("out");
  epochs.train.max_steps = 0;
  EXPECT_NE(judge_steps(open_inputs(epochs)).find("raise train.epochs"), std::string::npos);
}

/// Its header is complete.
void cut_image(const test::TinyRun& run, const std::string& name) {
  const std::string file = run.dir().file("images/" + name);
  run.dir().write("images/" + name, test::slurp(file).substr(0, 100));
}

TEST(Preflight, ACutImageIsFoundInEveryRow) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.data.workers = 3;
  EXPECT_TRUE(check_images(open_inputs(recipe), 1e9).empty());
  for (const char* name : {"red0.bmp", "blue5.bmp", "blue11.bmp"}) {
    const test::TinyRun broken;
    recipe.data.train = broken.dir().file("rows.json");
    recipe.data.image_root = broken.dir().file("images");
    cut_image(broken, name);
    RunInputs inputs = open_inputs(recipe);
    EXPECT_TRUE(check_samples(inputs).empty()) << "its header tells nothing";
    EXPECT_LFT_ERROR(ErrorKind::kInput, name, check_images(inputs, 1e9));
  }
}

TEST(Preflight, ACutImageOfTheHeldOutRowsIsFoundToo) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  nlohmann::json rows = nlohmann::json::parse(test::slurp(recipe.data.eval));
  rows.erase(1);
  recipe.data.train = run.dir().write("without.json", rows.dump());
  cut_image(run, "green1.bmp");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "green1.bmp", check_images(open_inputs(recipe), 1e9));
}

TEST(Preflight, CutImagesThatAreSkippedAreCountedUpToTheLimit) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.data.on_bad_sample = "skip";
  cut_image(run, "green4.bmp");
  cut_image(run, "red9.bmp");
  const std::string line = join(check_images(open_inputs(recipe), 1e9));
  EXPECT_NE(line.find("data.train: 2 of 12 samples cannot be read and will be left out, first "),
            std::string::npos)
      << line;
  EXPECT_NE(line.find("green4.bmp"), std::string::npos) << line;
  recipe.data.max_bad = 1;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "too many samples", check_images(open_inputs(recipe), 1e9));
}

TEST(Preflight, WhatTheTimeWasNotEnoughForIsSaid) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  EXPECT_EQ(join(check_images(open_inputs(recipe), 0)),
            "data.train: the images of 1 of 12 samples were decoded; lft validate decodes all of "
            "them");
}

}  // namespace
}  // namespace lft::preflight_test
