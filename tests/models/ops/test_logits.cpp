// The choice among a token's logits.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "models/ops/elementwise/logits.h"

namespace lft::logits_test {
namespace {

constexpr int64_t kSizes[] = {1, 2, 15, 16, 17, 255, 1000, 32003};

TEST(Logits, TheLargestIsTheFirstOfSeveral) {
  at::manual_seed(1);
  for (const int64_t size : kSizes) {
    for (int i = 0; i < 20; ++i) {
      const at::Tensor x = at::randint(-5, i, {size}, at::kFloat);
      const auto* const begin = x.const_data_ptr<float>();
      EXPECT_EQ(ops::largest(x), std::max_element(begin, begin + size) - begin) << size;
      EXPECT_EQ(ops::largest(x), at::argmax(x).item<int64_t>()) << size;
    }
  }
  const at::Tensor forbidden = at::full({7}, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(ops::largest(forbidden), 0);
  EXPECT_EQ(ops::largest(at::arange(12, at::kFloat).view({3, 4}).select(1, 2)), 2);
}

TEST(Logits, ARowWithOneNumberThatIsNotFiniteIsFound) {
  at::manual_seed(2);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t size : kSizes) {
    const at::Tensor finite = at::randn({3, size}) * (std::numeric_limits<float>::max() / 8);
    EXPECT_EQ(ops::finite_rows(finite), (std::vector<bool>{true, true, true})) << size;
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (const int64_t at : {int64_t{0}, size / 2, size - 1}) {
        const at::Tensor x = finite.clone();
        x[1][at] = bad;
        EXPECT_EQ(ops::finite_rows(x), (std::vector<bool>{true, false, true})) << size << " " << at;
      }
    }
  }
}

}  // namespace
}  // namespace lft::logits_test
