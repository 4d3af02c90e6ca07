// Factors against transformers 5.17:
//   o = torch.optim.SGD([torch.zeros(1)], lr=1.0); s = get_cosine_schedule_with_warmup(o, 3, 10)
//   for i in range(12): print(s.get_last_lr()[0]); o.step(); s.step()
#include <gtest/gtest.h>

#include <vector>

#include "src/train/optim/schedule.h"
#include "support/expect_error.h"

namespace lft::schedule_test {
using namespace lft::train;
namespace {

Schedule make(const std::string& name, double warmup_ratio, int64_t total, double least = 0,
              double decay_ratio = 0.2) {
  recipe::Recipe::Optim optim;
  optim.schedule = name;
  optim.warmup_ratio = warmup_ratio;
  optim.min_lr_ratio = least;
  optim.decay_ratio = decay_ratio;
  return Schedule::make(optim, total);
}

void expect_factors(const std::string& name, const Schedule& schedule,
                    const std::vector<double>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(schedule.factor(static_cast<int64_t>(i)), wanted[i], 1e-15)
        << name << " after " << i << " steps";
  }
}

void expect_factors(const std::string& name, double ratio, int64_t total,
                    const std::vector<double>& wanted) {
  expect_factors(name, make(name, ratio, total), wanted);
}

TEST(Schedule, EqualsTransformers) {
  expect_factors("constant", 0.3, 10, {0, 1. / 3, 2. / 3, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  expect_factors(
      "linear", 0.3, 10,
      {0.0, 0.3333333333333333, 0.6666666666666666, 1.0, 0.8571428571428571, 0.7142857142857143,
       0.5714285714285714, 0.42857142857142855, 0.2857142857142857, 0.14285714285714285, 0.0, 0.0});
  expect_factors("cosine", 0.3, 10,
                 {0.0, 0.3333333333333333, 0.6666666666666666, 1.0, 0.9504844339512095,
                  0.8117449009293668, 0.6112604669781572, 0.38873953302184283, 0.18825509907063326,
                  0.04951556604879048, 0.0, 0.04951556604879043});
}

TEST(Schedule, WithoutWarmupAndWithNothingElse) {
  expect_factors("linear", 0, 4, {1.0, 0.75, 0.5, 0.25, 0.0, 0.0});
  expect_factors("cosine", 0, 4, {1.0, 0.8535533905932737, 0.5, 0.14644660940672627, 0.0});
  expect_factors("linear", 1, 4, {0.0, 0.25, 0.5, 0.75, 0.0, 0.0});
}

/// get_wsd_schedule(o, 2, 3, num_training_steps=10, min_lr_ratio=0.1), (o, 0, 4, 8);
/// get_cosine_with_min_lr_schedule_with_warmup(o, 3, 10, min_lr_rate=0.1);
/// get_polynomial_decay_schedule_with_warmup(o, 3, 10, lr_end=0.1, power=1.0)
TEST(Schedule, FloorsAndWarmupStableDecayEqualTransformers) {
  expect_factors("wsd", make("wsd", 0.2, 10, 0.1, 0.3),
                 {0.1, 0.55, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.775, 0.3250000000000001, 0.1, 0.1});
  expect_factors("wsd", make("wsd", 0, 8, 0, 0.5),
                 {1.0, 1.0, 1.0, 1.0, 1.0, 0.8535533905932737, 0.5, 0.14644660940672627, 0.0});
  expect_factors(
      "cosine", make("cosine", 0.3, 10, 0.1),
      {0.0, 0.3333333333333333, 0.6666666666666666, 1.0, 0.9554359905560885, 0.8305704108364301,
       0.6501344202803414, 0.44986557971965857, 0.26942958916356996, 0.14456400944391146, 0.1});
  expect_factors(
      "linear", make("linear", 0.3, 10, 0.1),
      {0.0, 0.3333333333333333, 0.6666666666666666, 1.0, 0.8714285714285714, 0.7428571428571429,
       0.6142857142857142, 0.48571428571428577, 0.3571428571428571, 0.22857142857142862, 0.1, 0.1});
}

TEST(Schedule, WarmupStepsAreRoundedUp) {
  EXPECT_EQ(make("cosine", 0.03, 100).warmup, 3);
  EXPECT_EQ(make("cosine", 0.03, 101).warmup, 4);
  EXPECT_EQ(make("cosine", 0.03, 1).warmup, 1);
  EXPECT_EQ(make("cosine", 0, 100).warmup, 0);
}

TEST(Schedule, UnknownNameIsAUsageError) {
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "cosine", make("cosinus", 0, 1));
}

TEST(Schedule, KnowsWhetherAStepHasChangedTheWeights) {
  const Schedule warms_up = make("cosine", 0.3, 10), at_once = make("cosine", 0, 10),
                 short_run = make("linear", 0, 1);
  EXPECT_FALSE(warms_up.changes_weights(0));
  EXPECT_FALSE(warms_up.changes_weights(1)) << "the first factor of a warm-up is 0";
  EXPECT_TRUE(warms_up.changes_weights(2));
  EXPECT_TRUE(warms_up.changes_weights(10));
  EXPECT_FALSE(at_once.changes_weights(0));
  EXPECT_TRUE(at_once.changes_weights(1));
  EXPECT_TRUE(short_run.changes_weights(1));
}

}  // namespace
}  // namespace lft::schedule_test
