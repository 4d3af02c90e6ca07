// The estimated duration of a run: closed forms, and that the passes which are timed change
// nothing.
#include <gtest/gtest.h>

#include "src/train/run/estimate.h"
#include "src/train/run/trainer.h"
#include "train/run_files.h"

namespace lft::estimate_test {
using namespace lft::recipe;
using namespace lft::train;
using namespace lft::test;
namespace {

TEST(Estimate, ThePaddedLengthIsTheMeanOfTheLongestInABatch) {
  EXPECT_DOUBLE_EQ(padded_mean({3, 1, 2}, 1), 2);
  // of the nine pairs of 1, 2 and 3: one has the maximum 1, three 2 and five 3
  EXPECT_DOUBLE_EQ(padded_mean({3, 1, 2}, 2), 22.0 / 9);
  EXPECT_NEAR(padded_mean({3, 1, 2}, 1000), 3, 1e-9);
  EXPECT_EQ(padded_mean({}, 4), 0);
}

TEST(Estimate, IsTheSumOfItsPasses) {
  const Speed speed{
      .position = 0.01, .forward = 0.004, .first_token = 0.5, .token = 0.1, .image = 0.25};
  const Work work{.steps = 50,
                  .evaluations = 4,
                  .step_positions = 200,
                  .eval_positions = 300,
                  .image_positions = 200,
                  .images = 20,
                  .in_evaluation = {.alone = 8, .tokens = 40},
                  .around = {.alone = 2, .positions = 250, .tokens = 10}};
  const Estimate estimate = estimate_time(speed, work);
  EXPECT_DOUBLE_EQ(estimate.steps_s, 100);
  EXPECT_DOUBLE_EQ(estimate.evaluations_s, 4 * (2 + 4 + 4));
  EXPECT_DOUBLE_EQ(estimate.answers_s, 1 + 1 + 1);
  EXPECT_DOUBLE_EQ(estimate.images_s, 5);
  EXPECT_EQ(
      describe_estimate(estimate, work),
      "time       about 2 min for 50 steps (estimated), of which 40 s in 4 evaluations and 3 s in "
      "the answers before and after and 5 s in the features of 20 images");
  EXPECT_EQ(describe_estimate({.steps_s = 4, .evaluations_s = 0.1}, {.steps = 1}),
            "time       about 4 s for 1 step (estimated)");
}

TEST(Estimate, DurationsAreRounded) {
  EXPECT_EQ(about(0.02), "1 s");
  EXPECT_EQ(about(42.4), "42 s");
  EXPECT_EQ(about(100), "2 min");
  EXPECT_EQ(about(89.7 * 60), "90 min");
  EXPECT_EQ(about(2.26 * 3600), "2.3 h");
  EXPECT_EQ(about(3 * 86400), "3.0 days");
}

struct Measured {
  Speed speed;
  Work work;
};
Measured measured(const Recipe& recipe, bool lengths = true) {
  RunInputs inputs = open_inputs(recipe);
  if (lengths) sample_lengths(inputs.data);
  Run run = make_run(std::move(inputs));
  TrainabilityReport proof = check_trainable(run.model.model, run.model.trainables,
                                             {&run.optimizer}, run.model.excluded, run.probe);
  EXPECT_GT(proof.pass_s, 0);
  return {measure_speed(run, proof), planned_work(run)};
}

/// Answers have three, four and five bytes, so that the probe's rows tell nearly the mean length.
TEST(Estimate, CountsStepsEvaluationsAndAnswersOfARecipe) {
  const TinyRun tiny;
  Recipe recipe = tiny.recipe("out");
  recipe.train.eval_every_steps = 4;  // after steps 4 and 6
  recipe.log.answers = 8;
  const Work work = measured(recipe).work;
  EXPECT_EQ(work.steps, 6);
  EXPECT_EQ(work.evaluations, 2);
  EXPECT_GT(work.step_positions, 0);
  EXPECT_NEAR(work.eval_positions, 12.0 / 4 * work.step_positions, 1e-6);  // 12 rows, 4 in a step
  EXPECT_NEAR(work.image_positions, 3 * work.step_positions, 4 * 3 * 2);   // the probe: 4 rows
  EXPECT_EQ(work.in_evaluation.alone, 8);
  EXPECT_EQ(work.in_evaluation.positions, 0);
  EXPECT_GT(work.in_evaluation.tokens, 8);
  recipe.train.grad_accum = 3;
  EXPECT_NEAR(measured(recipe).work.step_positions, 3 * work.step_positions, 1e-6);
  recipe.train.keep_best = "exact";  // answers all rows, in batches
  const Work metric = measured(recipe).work;
  EXPECT_EQ(metric.in_evaluation.alone, 0);
  EXPECT_LT(metric.in_evaluation.positions, metric.eval_positions);  // without the answers
  EXPECT_NEAR(metric.in_evaluation.tokens, 3.0 / 8 * work.in_evaluation.tokens, 1e-6);
  recipe.data.eval.clear();
  EXPECT_EQ(measured(recipe).work.evaluations, 0);
  EXPECT_NEAR(measured(recipe, false).work.step_positions, 3 * work.step_positions, 12 * 2);
}

TEST(Estimate, FeaturesThatAreKeptAreCountedOnce) {
  const TinyRun tiny;
  Recipe recipe = tiny.recipe("out");
  EXPECT_EQ(measured(recipe).work.images, 0) << "the projector is trained";
  recipe.full.clear();
  recipe.lora.targets = {"llm:all-linear"};
  const Measured kept = measured(recipe);
  EXPECT_EQ(kept.work.images, 24) << "12 rows to train on and 12 to evaluate";
  EXPECT_GT(kept.speed.image, 0);
  recipe.train.max_steps = 2;
  EXPECT_EQ(measured(recipe).work.images, 8 + 12);
  recipe.data.image_cache_mb = 0;
  const Measured again = measured(recipe);
  EXPECT_EQ(again.work.images, 0);
  EXPECT_EQ(again.speed.image, 0);
}

TEST(Estimate, ASpeedIsMeasuredAndNothingChanges) {
  const TinyRun tiny;
  const Recipe recipe = tiny.recipe("out");
  train::Run run = make_run(open_inputs(recipe));
  std::vector<at::Tensor> before;
  for (const lora::Trainable& each : run.model.trainables) before.push_back(each.tensor.clone());
  const TrainabilityReport proof = check_trainable(run.model.model, run.model.trainables,
                                                   {&run.optimizer}, run.model.excluded, run.probe);
  const Speed speed = measure_speed(run, proof);
  EXPECT_GT(speed.position, 0);
  EXPECT_GT(speed.forward, 0);
  EXPECT_LE(speed.forward, speed.position);
  EXPECT_GT(speed.first_token, 0);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(before[i].equal(run.model.trainables[i].tensor));
    EXPECT_FALSE(run.model.trainables[i].tensor.grad().defined());
  }
  TrainabilityReport broken = proof;
  broken.probe_finite = false;
  EXPECT_EQ(estimate_line(run, broken), "");
}

}  // namespace
}  // namespace lft::estimate_test
