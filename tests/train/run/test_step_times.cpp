// The time of a step, without the evaluations and checkpoints before it, which have separate
// fields.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "src/train/record/step_clock.h"
#include "src/train/run/trainer.h"
#include "train/run_files.h"

namespace lft::step_times_test {
using namespace lft::recipe;
using namespace lft::train;
using namespace lft::test;
namespace {

using std::chrono::milliseconds;

TEST(StepClock, SplitsTheTimeBetweenTwoLaps) {
  const auto begin = std::chrono::steady_clock::now();
  StepClock clock;
  std::this_thread::sleep_for(milliseconds(10));
  {
    const StepClock::Span span(clock, &StepTimes::eval_s);
    std::this_thread::sleep_for(milliseconds(60));
  }
  {
    const StepClock::Span span(clock, &StepTimes::checkpoint_s);
    std::this_thread::sleep_for(milliseconds(30));
  }
  const StepTimes times = clock.lap();
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(times.step_s, 0.010);
  EXPECT_GE(times.eval_s, 0.060);
  EXPECT_GE(times.checkpoint_s, 0.030);
  EXPECT_LE(times.step_s + times.eval_s + times.checkpoint_s, all.count());
  const StepTimes next = clock.lap();
  EXPECT_EQ(next.eval_s, 0);
  EXPECT_EQ(next.checkpoint_s, 0);
  EXPECT_LT(next.step_s, all.count());
}

TEST(StepTimes, AreThoseOfTheStepAndWhatCameBeforeItHasItsOwnFields) {
  const TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.train.eval_every_steps = 2;
  recipe.checkpoint.every_steps = 3;
  recipe.train.keep_best = "exact";  // answers: an evaluation takes longer than a step
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(train::train(recipe), 0);
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
  double sum = 0;
  const std::vector<Json> steps = step_lines(recipe.output_dir);
  ASSERT_EQ(steps.size(), 6u);
  for (const Json& line : steps) {
    const int step = line["step"];
    EXPECT_EQ(line["eval_s"] > 0, step == 3 || step == 5) << line;
    EXPECT_EQ(line["checkpoint_s"] > 0, step == 4) << line;
    EXPECT_GT(line["step_s"], 0);
    EXPECT_NEAR(line["tokens_per_s"].get<double>() * line["step_s"].get<double>(), line["tokens"],
                1e-6 * line["tokens"].get<double>());
    for (const char* part : {"step_s", "eval_s", "checkpoint_s"}) sum += line[part].get<double>();
  }
  EXPECT_LT(sum, all.count());
}

}  // namespace
}  // namespace lft::step_times_test
