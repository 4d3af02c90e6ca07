// The order in which the gradients of micro-batches are added.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "src/train/step/gradient_tree.h"

namespace lft::gradient_tree_test {
using namespace lft::train;
namespace {

/// Summed on one thread in the tree's order; an undefined part counts as zeros.
at::Tensor tree_sum(const std::vector<at::Tensor>& parts, Range range) {
  if (range.size() == 1) return parts[static_cast<size_t>(range.begin)].clone();
  const int64_t middle = middle_of(range);
  return tree_sum(parts, {range.begin, middle}) + tree_sum(parts, {middle, range.end});
}

TEST(GradientTree, HasTheBitsOfTheTreeWhateverIsLeftOut) {
  constexpr int64_t kSize = 33;
  at::manual_seed(5);
  for (int64_t count = 1; count <= 9; ++count) {
    for (int64_t left_out = 0; left_out < (1 << count); ++left_out) {
      std::vector<at::Tensor> parts;
      const at::Tensor flat = at::zeros({kSize});
      const int64_t first = 100;  // first part of a share that follows others
      GradientTree tree(flat, {first, first + count});
      for (int64_t i = 0; i < count; ++i) {
        const bool runs = (left_out >> i & 1) == 0;
        parts.push_back(runs ? at::randn({kSize}) * 1e3 : at::zeros({kSize}));
        if (!runs) continue;
        tree.before(first + i);
        EXPECT_EQ(flat.count_nonzero().item<int64_t>(), 0);
        flat.add_(parts.back());
      }
      tree.finish();
      ASSERT_TRUE(at::equal(flat, tree_sum(parts, {0, count}))) << count << ", " << left_out;
    }
  }
}

TEST(GradientTree, OfOneMicroBatchCopiesNothing) {
  const at::Tensor flat = at::zeros({5});
  GradientTree tree(flat, {0, 1});
  tree.before(0);
  flat.add_(at::ones({5}));
  const int64_t version = flat._version();
  tree.finish();
  EXPECT_EQ(flat._version(), version);
  EXPECT_TRUE(at::equal(flat, at::ones({5})));
}

TEST(GradientTree, LargeGradientsOfAGpuDoNotWait) {
  EXPECT_TRUE(adds_by_tree(1e12, at::kCPU));
  EXPECT_TRUE(adds_by_tree(1 << 30, at::Device("cuda:0")));
  EXPECT_FALSE(adds_by_tree(2e9, at::Device("cuda:0")));
}

}  // namespace
}  // namespace lft::gradient_tree_test
