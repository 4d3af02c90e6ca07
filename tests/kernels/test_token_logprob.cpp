// log softmax at a target and its gradient: the reference against closed forms and finite
// differences, the kernel against the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/arena.h"
#include "kernels/token_logprob/token_logprob.h"

namespace lft::token_logprob_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(TokenLogprobRef, KnownValues) {
  std::vector<float> logits = {0, 0, 0, 0, 1000, 0, -1000, 0}, result(2);
  const std::vector<int64_t> targets = {2, 2};
  token_logprob_ref({.rows = 2,
                     .vocab = 4,
                     .logits = logits.data(),
                     .targets = targets.data(),
                     .result = result.data()});
  EXPECT_FLOAT_EQ(result[0], static_cast<float>(-std::log(4.0)));
  EXPECT_EQ(result[1], -2000);
}

/// Central differences of 2 * logprob: h^2 / 6 of a third derivative below 1, float32 rounding of
/// values below 8 over 2 h.
TEST(TokenLogprobRef, TheGradientEqualsFiniteDifferences) {
  const std::vector<float> start = {0.3f, -1, 2, 0.5f, 0};
  const int64_t target = 3;
  const float scale = 2, step = 1.0f / 128;
  const auto run = [&](std::vector<float> logits, bool gradient) {
    float result = 0;
    token_logprob_ref({.rows = 1,
                       .vocab = 5,
                       .logits = logits.data(),
                       .targets = &target,
                       .scale = gradient ? &scale : nullptr,
                       .result = &result});
    logits.push_back(result);
    return logits;
  };
  const std::vector<float> gradient = run(start, true);
  for (size_t i = 0; i < start.size(); ++i) {
    std::vector<float> up = start, down = start;
    up[i] += step;
    down[i] -= step;
    EXPECT_NEAR(gradient[i], scale * (run(up, false)[5] - run(down, false)[5]) / (2 * step), 3e-4)
        << i;
  }
}

TEST(TokenLogprobRef, ANonFiniteLogitMakesItsRowNotANumber) {
  std::vector<float> logits = {0, kInf, 0, 0, -kInf, 1, 0, NAN, 0}, result(3);
  const std::vector<int64_t> targets = {0, 0, 0};
  token_logprob_ref({.rows = 3,
                     .vocab = 3,
                     .logits = logits.data(),
                     .targets = targets.data(),
                     .result = result.data()});
  EXPECT_TRUE(std::isnan(result[0]));
  EXPECT_NEAR(result[1], -std::log(1 + std::exp(1.0)), 1e-6);  // -inf is an impossible token
  EXPECT_TRUE(std::isnan(result[2]));
}

#ifdef LFT_HAVE_CUDA
/// float32: exponentials within 4 units and 2^-23 of their argument (below 60), a sum as a tree, a
/// logarithm; then the stored type's rounding.
void expect_gpu_equals_ref(FloatType type, int64_t rows, int64_t vocab, bool gradient,
                           int64_t misaligned = 0) {
  test::Arena start;
  const size_t logits = start.add(type, rows * vocab, misaligned),
               scale = start.add(FloatType::kF32, rows);
  const size_t result = start.add(FloatType::kF32, rows);
  start.fill_normal(logits, 1, 6);
  start.fill_normal(scale, 2, 1);
  std::vector<int64_t> targets(rows);
  for (int64_t r = 0; r < rows; ++r) targets[r] = (r * 7919) % vocab;
  const auto args = [&](uint8_t* base, const int64_t* at) {
    const auto place = [&](size_t a) {
      return reinterpret_cast<float*>(base + start.arrays()[a].offset);
    };
    return TokenLogprobArgs{.type = type,
                            .rows = rows,
                            .vocab = vocab,
                            .logits = base + start.arrays()[logits].offset,
                            .targets = at,
                            .scale = gradient ? place(scale) : nullptr,
                            .result = place(result)};
  };
  test::Arena want = start, got = start;
  token_logprob_ref(args(want.bytes().data(), targets.data()));
  test::DeviceArray<uint8_t> bytes(start.bytes());
  test::DeviceArray<int64_t> on_device(targets);
  ASSERT_TRUE(bytes.ok() && on_device.ok());
  token_logprob(args(bytes.data(), on_device.data()), nullptr);
  got.bytes() = bytes.to_host();
  const double stored = test::rounding(type);
  constexpr double kExp = (8 + 60) * 0x1p-23;
  for (int64_t r = 0; r < rows; ++r) {
    ASSERT_NEAR(got.get(result, r), want.get(result, r),
                kExp + std::abs(want.get(result, r)) * 4 * 0x1p-24)
        << r;
    for (int64_t i = r * vocab; i < (r + 1) * vocab; ++i) {
      const double size = gradient ? std::abs(start.get(scale, r)) * 2 : 0;
      ASSERT_NEAR(got.get(logits, i), want.get(logits, i),
                  std::abs(want.get(logits, i)) * 2 * stored + size * kExp + 0x1p-25)
          << i;
    }
  }
}

TEST(TokenLogprobGpu, EqualsTheReferenceOverSizesTypesAndAlignment) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t vocab : {1, 5, 64, 4099, 32064}) {
      expect_gpu_equals_ref(type, 2, vocab, /*gradient=*/true);
      expect_gpu_equals_ref(type, 2, vocab, /*gradient=*/false, vocab == 64 ? 1 : 0);
    }
  }
}

/// Rows that fit into registers, with 512 or 1024 threads, and rows that do not.
TEST(TokenLogprobGpu, EqualsTheReferenceAtEveryWidth) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const int64_t vocab : {32768, 32776, 65536, 65544, 100000, 100003}) {
    for (const bool gradient : {false, true})
      expect_gpu_equals_ref(FloatType::kBF16, 2, vocab, gradient);
  }
  expect_gpu_equals_ref(FloatType::kF32, 2, 32768, /*gradient=*/true);
  expect_gpu_equals_ref(FloatType::kF32, 2, 50000, /*gradient=*/true);
  expect_gpu_equals_ref(FloatType::kF16, 2, 65536, /*gradient=*/true);
}

TEST(TokenLogprobGpu, NonFiniteLogitsAreNotHidden) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  test::Arena arena;
  std::vector<float> values(3000,
                            -kInf);  // row 0: contains +inf; row 1: NaN; row 2: all -inf but one
  for (int i = 0; i < 2000; ++i) values[i] = 0.5f;
  values[700] = kInf;
  values[1999] = NAN;
  values[2500] = 3;
  const size_t logits = arena.put(FloatType::kF32, values), result = arena.add(FloatType::kF32, 3);
  test::DeviceArray<uint8_t> bytes(arena.bytes());
  test::DeviceArray<int64_t> targets({0, 0, 500});
  token_logprob({.rows = 3,
                 .vocab = 1000,
                 .logits = bytes.data() + arena.arrays()[logits].offset,
                 .targets = targets.data(),
                 .result = reinterpret_cast<float*>(bytes.data() + arena.arrays()[result].offset)},
                nullptr);
  arena.bytes() = bytes.to_host();
  EXPECT_TRUE(std::isnan(arena.get(result, 0)));
  EXPECT_TRUE(std::isnan(arena.get(result, 1)));
  // The logarithm of exp(0), whose approximation is within 2^-22 of 1.
  EXPECT_NEAR(arena.get(result, 2), 0, 0x1.8p-22);
}
#endif

}  // namespace
}  // namespace lft::token_logprob_test
