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

void expect_factors(const std::string& name, double ratio, int64_t total,
                    const std::vector<double>& wanted) {
  const Schedule schedule = Schedule::make(name, ratio, total);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(schedule.factor(static_cast<int64_t>(i)), wanted[i], 1e-15)
        << name << " after " << i << " steps";
  }
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

TEST(Schedule, WarmupStepsAreRoundedUp) {
  EXPECT_EQ(Schedule::make("cosine", 0.03, 100).warmup, 3);
  EXPECT_EQ(Schedule::make("cosine", 0.03, 101).warmup, 4);
  EXPECT_EQ(Schedule::make("cosine", 0.03, 1).warmup, 1);
  EXPECT_EQ(Schedule::make("cosine", 0, 100).warmup, 0);
}

TEST(Schedule, UnknownNameIsAUsageError) {
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "cosine", Schedule::make("cosinus", 0, 1));
}

}  // namespace
}  // namespace lft::schedule_test
