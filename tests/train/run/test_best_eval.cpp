// train.keep_best and train.patience: a run exports its best evaluation, also after a
// resume.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "src/train/record/best_eval.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/overfitting.h"

namespace lft::best_eval_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

namespace fs = std::filesystem;
using test::adapter_bytes;
using test::eval_losses;
using test::overfitting;

TEST(BestEval, TakesTheLowestAndCountsTheOthers) {
  BestEval best;
  EXPECT_TRUE(best.take(3, 7, 2));
  EXPECT_FALSE(best.take(3, 7, 4)) << "equal is not lower";
  EXPECT_FALSE(best.take(std::numeric_limits<double>::quiet_NaN(), 7, 6));
  EXPECT_EQ(best.since, 1) << "what is not finite is not compared";
  EXPECT_TRUE(best.waited(1));
  EXPECT_FALSE(best.waited(2));
  EXPECT_FALSE(best.waited(0)) << "0: to the last step";
  EXPECT_FALSE(best.take(1, 7, 6)) << "that step was evaluated before";
  EXPECT_FALSE(best.take(4, 7, 7, /*counts=*/false));
  EXPECT_EQ(best.since, 1) << "no evaluation that the recipe asks for";
  EXPECT_FALSE(best.take(-std::numeric_limits<double>::infinity(), 7, 8));
  EXPECT_TRUE(best.take(2.5, 7, 9, /*counts=*/false)) << "a better one is the best all the same";
  EXPECT_EQ(best.step, 9);
  EXPECT_EQ(best.since, 0);
  const BestEval again = best_from(best_json(best));
  EXPECT_EQ(again.cost, 2.5);
  EXPECT_EQ(again.loss, 7);
  EXPECT_EQ(again.step, 9);
  EXPECT_EQ(again.last_step, 9);
  const BestEval none = best_from(best_json(BestEval()));
  EXPECT_EQ(none.cost, std::numeric_limits<double>::infinity()) << "JSON has no infinity";
  const LastEval last = last_eval_from(last_eval_json(
      {.step = 4, .due = true, .scheduled = true, .loss = 0.1, .figures = {{"anls", 0.3}}}));
  EXPECT_EQ(last.step, 4);
  EXPECT_TRUE(last.due && last.scheduled);
  EXPECT_EQ(last.loss, 0.1);
  EXPECT_EQ(last.figures, (std::vector<std::pair<std::string, double>>{{"anls", 0.3}}));
}

TEST(KeepBest, TheAdapterIsThatOfTheLowestEvaluation) {
  const test::TinyRun run;
  const Recipe recipe = overfitting(run, "best", 10);
  ASSERT_EQ(train::train(recipe), 0);
  const std::vector<double> losses = eval_losses(recipe);
  const auto lowest = std::min_element(losses.begin(), losses.end());
  const int64_t step = lowest - losses.begin() + 1;
  ASSERT_GT(step, 1);
  ASSERT_LT(step, 10) << "the planted run is to overfit: " << ::testing::PrintToString(losses);
  Recipe until_then = overfitting(run, "until", step);
  until_then.train.keep_best = "none";
  ASSERT_EQ(train::train(until_then), 0);
  EXPECT_EQ(adapter_bytes(recipe), adapter_bytes(until_then));
  EXPECT_TRUE(fs::exists(recipe.output_dir + "/checkpoints/step-10"));
  EXPECT_EQ(std::distance(fs::directory_iterator(recipe.output_dir + "/best"), {}), 1);
  Recipe last = overfitting(run, "last", 10);
  last.train.keep_best = "none";
  ASSERT_EQ(train::train(last), 0);
  EXPECT_NE(adapter_bytes(recipe), adapter_bytes(last));
}

/// The first step of a warm-up has a learning rate of zero: its evaluation is that of the weights
/// before training, whose adapter does nothing.
TEST(KeepBest, AnEvaluationBeforeAnyUpdateIsNotTheBest) {
  const test::TinyRun run;
  Recipe recipe = overfitting(run, "warm", 4);
  recipe.optim.warmup_ratio = 0.25;
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_EQ(eval_losses(recipe).size(), 4);
  EXPECT_EQ(test::events(recipe.output_dir, "best").at(0)["step"], 2);
}

/// The answers' edit distance to "gnu" instead of the loss: the first of the best is kept. The
/// report has the shown rows' answers of each evaluation.
TEST(KeepBest, AMetricChoosesTheEvaluation) {
  const test::TinyRun run;
  Recipe recipe = overfitting(run, "anls", 8);
  recipe.train.keep_best = "anls";
  recipe.train.eval_every_steps = 2;
  recipe.data.eval = recipe.data.train.path;  // what it learns
  recipe.log.answers = 8;
  ASSERT_EQ(train::train(recipe), 0);
  double best = -1;
  int64_t step = 0;
  for (const Json& line : test::events(recipe.output_dir, "eval")) {
    const double anls = line.at("anls");
    EXPECT_GE(anls, line.at("exact_match").get<double>());
    if (anls > best) step = line.at("step");
    best = std::max(best, anls);
  }
  EXPECT_EQ(test::events(recipe.output_dir, "best").back()["step"], step);
  EXPECT_EQ(test::events(recipe.output_dir, "eval_answers").size(), 4u);
  for (const Json& each : test::events(recipe.output_dir, "eval_answers"))
    EXPECT_EQ(each.at("answers").size(), 8u);
  const std::string report = test::slurp(recipe.output_dir + "/report.html");
  EXPECT_NE(report.find("\"evaluations\":[[2,"), std::string::npos);
  Recipe until_then = overfitting(run, "until", step);
  until_then.data.eval = recipe.data.eval;
  until_then.train.keep_best = "none";
  ASSERT_EQ(train::train(until_then), 0);
  EXPECT_EQ(adapter_bytes(recipe), adapter_bytes(until_then));
}

TEST(KeepBest, PatienceEndsTheRunAndAResumedRunToo) {
  const test::TinyRun run;
  Recipe recipe = overfitting(run, "out", 40);
  recipe.train.patience = 3;
  ASSERT_EQ(train::train(recipe), 0);
  const std::vector<double> losses = eval_losses(recipe);
  const int64_t best = std::min_element(losses.begin(), losses.end()) - losses.begin() + 1;
  ASSERT_LT(losses.size(), 40u);
  EXPECT_EQ(static_cast<int64_t>(losses.size()), best + 3);
  const std::vector<Json> stops = test::events(recipe.output_dir, "early_stop");
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0]["step"], best + 3);
  EXPECT_EQ(stops[0]["best_step"], best);
  const std::string adapter = adapter_bytes(recipe);
  ASSERT_EQ(train::train(recipe, {.resume = true}), 0) << "nothing is left to do";
  EXPECT_EQ(adapter_bytes(recipe), adapter);
  EXPECT_EQ(test::step_lines(recipe.output_dir).size(), losses.size());
}

TEST(KeepBest, ARunInTwoPartsHandsOutTheSame) {
  const test::TinyRun run;
  const Recipe whole = overfitting(run, "whole", 8), parts = overfitting(run, "parts", 8);
  ASSERT_EQ(train::train(whole), 0);
  ASSERT_EQ(train::train(parts, {.stop_after_step = 5}), 0);
  ASSERT_EQ(train::train(parts, {.resume = true}), 0);
  EXPECT_EQ(adapter_bytes(parts), adapter_bytes(whole));
  EXPECT_EQ(eval_losses(parts), eval_losses(whole));
}

TEST(KeepBest, ADamagedBestIsRefused) {
  const test::TinyRun run;
  const Recipe recipe = overfitting(run, "out", 8);
  ASSERT_EQ(train::train(recipe), 0);
  const fs::path best = *fs::directory_iterator(recipe.output_dir + "/best");
  fs::resize_file(best / "trainables.safetensors", 100);
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "trainables.safetensors",
                   train::train(recipe, {.resume = true}));
}

}  // namespace
}  // namespace lft::best_eval_test
