// Attention to a cache against the definition in double, for heads of any size, grouped heads, gaps
// in what is seen, strided caches, and its independence of other rows and of threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/ops/attention/cache_attention.h"

namespace lft::cache_attention_test {
namespace {

struct Case {
  int64_t b, g, r, s, e;
};
struct Inputs {
  at::Tensor q, keys, values, seen;
};

Inputs make(const Case& of, at::ScalarType type) {
  at::manual_seed(7);
  const auto normal = [&](std::vector<int64_t> sizes) {
    return at::randn(sizes, at::kDouble).to(type);
  };
  const at::Tensor lengths = at::randint(1, of.s + 1, {of.b, 1}, at::kLong);
  return {normal({of.b, of.g, of.r, of.e}), normal({of.b, of.g, of.s, of.e}),
          normal({of.b, of.g, of.s, of.e}),
          (at::arange(of.s).unsqueeze(0) < lengths).unsqueeze(1).unsqueeze(1)};
}

at::Tensor defined(const Inputs& of) {
  const at::Tensor scores = at::matmul(of.q.to(at::kDouble), of.keys.to(at::kDouble).mT()) /
                            std::sqrt(static_cast<double>(of.q.size(3)));
  const at::Tensor weights =
      scores.masked_fill(of.seen.logical_not(), -std::numeric_limits<double>::infinity())
          .softmax(-1);
  return at::matmul(weights, of.values.to(at::kDouble));
}

at::Tensor run(const Inputs& of) {
  const at::NoGradGuard no_grad;
  return ops::cache_attention(of.q, of.keys, of.values, of.seen);
}

/// The result is a mean of the values with float32 weights: sums of s and e terms of at most
/// max |v| round at most (s + e + 4) times each, and the result once to its dtype.
void expect_close(const Inputs& of, const Case& sizes) {
  const double top = of.values.to(at::kDouble).abs().max().item<double>();
  const double to_type = of.q.scalar_type() == at::kBFloat16 ? 0x1p-9
                         : of.q.scalar_type() == at::kHalf   ? 0x1p-12
                                                             : 0;
  const double bound = top * (to_type + static_cast<double>(sizes.s + sizes.e + 4) * 0x1p-23);
  const at::Tensor out = run(of);
  ASSERT_EQ(out.scalar_type(), of.q.scalar_type());
  ASSERT_TRUE(out.is_contiguous());
  EXPECT_LE((out.to(at::kDouble) - defined(of)).abs().max().item<double>(), bound);
}

TEST(CacheAttention, EqualsTheDefinition) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Case& sizes :
         {Case{1, 1, 1, 1, 1}, Case{3, 2, 2, 37, 64}, Case{2, 1, 3, 256, 80}, Case{2, 1, 7, 60, 32},
          Case{8, 5, 3, 70, 17}, Case{1, 8, 1, 1024, 128}}) {
      SCOPED_TRACE(testing::Message() << type << ' ' << sizes.s << ' ' << sizes.e);
      expect_close(make(sizes, type), sizes);
    }
  }
}

TEST(CacheAttention, ReadsAPartOfALargerCacheAndAWindow) {
  const Case sizes{2, 3, 2, 50, 24};
  Inputs of = make({2, 3, 2, 128, 24}, at::kFloat);
  of.keys = of.keys.narrow(2, 0, 50);
  of.values = of.values.narrow(2, 0, 50);
  of.seen = at::zeros({2, 1, 1, 50}, at::kBool);
  of.seen[0][0][0].slice(0, 11, 30).fill_(true);    // a window
  of.seen[1][0][0].slice(0, 2, 49, 3).fill_(true);  // gaps
  of.keys[0].slice(1, 30, 50).fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor out = run(of);
  of.keys.nan_to_num_(0);
  EXPECT_LE((out.to(at::kDouble) - defined(of)).abs().max().item<double>(), 1e-5);
  expect_close(of, sizes);
}

TEST(CacheAttention, ARowDependsOnNeitherItsNeighboursNorTheThreads) {
  const Inputs all = make({4, 2, 3, 300, 64}, at::kBFloat16);
  const at::Tensor whole = run(all);
  const int threads = at::get_num_threads();
  for (int64_t row = 0; row < 4; ++row) {
    at::set_num_threads(row % 2 == 0 ? 1 : 3);
    const auto one = [&](const at::Tensor& x) { return x.narrow(0, row, 1); };
    EXPECT_TRUE(
        at::equal(run({one(all.q), one(all.keys), one(all.values), one(all.seen)}), one(whole)));
  }
  at::set_num_threads(threads);
}

TEST(CacheAttention, ANaNInAKeyThatIsSeenReachesTheResult) {
  Inputs of = make({1, 1, 2, 20, 16}, at::kFloat);
  of.seen.fill_(true);
  of.keys[0][0][13][5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(run(of).isnan().all().item<bool>());
}

TEST(CacheAttention, WithAGraphItHasLibTorchsGradient) {
  Inputs of = make({2, 2, 2, 9, 8}, at::kFloat);
  of.q.requires_grad_();
  const at::Tensor out = ops::cache_attention(of.q, of.keys, of.values, of.seen);
  EXPECT_TRUE(out.requires_grad());
  EXPECT_LE((out.to(at::kDouble) - defined(of)).abs().max().item<double>(), 1e-5);
}

}  // namespace
}  // namespace lft::cache_attention_test
