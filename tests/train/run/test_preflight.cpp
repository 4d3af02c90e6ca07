// What is said or refused before a run's first step: rows that lose their end, memory that is
// bounded by the rows.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/text.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/run/preflight.h"
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

TEST(Preflight, ImagesToEvaluateOnBetweenStepsAreReadBesideThoseToTrainOn) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");  // evaluates on the rows that it trains on
  const auto reading = [&](int64_t every) {
    recipe.train.eval_every_steps = every;
    RunInputs inputs = open_inputs(recipe);
    check_samples(inputs);
    for (const MemoryPart& part :
         plan_memory(inputs, worst_micro_batch(inputs, sample_lengths(inputs.data))).parts) {
      if (part.name == kImagesRead) return part.bytes;
    }
    return 0.0;
  };
  const double at_the_end = reading(0);
  EXPECT_GT(at_the_end, 3 * 31 * 31);  // the square of the largest one, 31 x 18
  EXPECT_EQ(reading(2), 2 * at_the_end);
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

}  // namespace
}  // namespace lft::preflight_test
