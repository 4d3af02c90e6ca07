// SwiGLU: the reference against closed forms and finite differences, the kernel against the
// reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/arena.h"
#include "kernels/swiglu/swiglu.h"

namespace lft::swiglu_test {
namespace {

TEST(SwigluRef, KnownValues) {
  const std::vector<float> gate = {0, 1, -1, 20, -200, 200}, up = {3, 2, 2, 0.5f, 7, 1};
  std::vector<float> y(6);
  swiglu_ref({FloatType::kF32, 6, gate.data(), up.data()}, y.data());
  EXPECT_EQ(y[0], 0);
  EXPECT_FLOAT_EQ(y[1], static_cast<float>(2 / (1 + std::exp(-1.0))));
  EXPECT_FLOAT_EQ(y[2], static_cast<float>(-2 / (1 + std::exp(1.0))));
  EXPECT_FLOAT_EQ(y[3], 10);  // exp(-20) is 2e-9
  EXPECT_EQ(y[4], 0);         // 200 exp(-200) is below the least float
  EXPECT_EQ(y[5], 200);
}

/// Central differences: h^2 / 6 of a third derivative below 2, and float32 rounding of values below
/// 12 over 2 h.
TEST(SwigluRef, BackwardEqualsFiniteDifferences) {
  constexpr float kStep = 1.0f / 128;
  for (const float gate : {-4.0f, -1.3f, 0.0f, 0.7f, 5.0f}) {
    for (const float up : {-2.0f, 0.5f}) {
      const float dy = 1.5f;
      float dgate = 0, dup = 0;
      swiglu_backward_ref({FloatType::kF32, 1, &gate, &up}, &dy, &dgate, &dup, nullptr);
      const auto value = [&](float g, float u) {
        float y = 0;
        swiglu_ref({FloatType::kF32, 1, &g, &u}, &y);
        return dy * y;
      };
      EXPECT_NEAR(dgate, (value(gate + kStep, up) - value(gate - kStep, up)) / (2 * kStep), 4e-4);
      EXPECT_NEAR(dup, (value(gate, up + kStep) - value(gate, up - kStep)) / (2 * kStep), 4e-4);
    }
  }
}

TEST(SwigluRef, WithDropoutIsTheDropoutOfTheRoundedProduct) {
  const DropoutArgs args{.seed = 1, .stream = 2, .threshold = 32768, .scale = 2};
  test::Arena arena;
  const size_t gate = arena.add(FloatType::kBF16, 100), up = arena.add(FloatType::kBF16, 100);
  const size_t y = arena.add(FloatType::kBF16, 100), dropped = arena.add(FloatType::kBF16, 100);
  arena.fill_normal(gate, 4, 2);
  arena.fill_normal(up, 5, 2);
  const SwigluInput in{FloatType::kBF16, 100, arena.data(gate), arena.data(up)};
  swiglu_dropout_ref(in, arena.data(y), arena.data(dropped), args);
  test::Arena plain = arena;
  swiglu_ref(in, plain.data(y));
  EXPECT_EQ(arena.values(y), plain.values(y));
  int kept = 0;
  for (int64_t i = 0; i < 100; ++i) {
    const float left = arena.get(dropped, i);
    EXPECT_TRUE(left == 0 || left == 2 * arena.get(y, i)) << i;
    kept += left != 0;
  }
  EXPECT_NEAR(kept, 50, 25);  // five standard deviations
}

TEST(SwigluRef, BackwardWithTheProductIsBoth) {
  test::Arena arena;
  const size_t dy = arena.add(FloatType::kBF16, 50), gate = arena.add(FloatType::kBF16, 50),
               up = arena.add(FloatType::kBF16, 50), y = arena.add(FloatType::kBF16, 50);
  for (const size_t array : {dy, gate, up}) arena.fill_normal(array, uint32_t(array + 1), 2);
  test::Arena want = arena, got = arena;
  const SwigluInput in{FloatType::kBF16, 50, want.data(gate), want.data(up)};
  swiglu_ref(in, want.data(y));
  swiglu_backward_ref(in, want.data(dy), want.data(gate), want.data(up), nullptr);
  const SwigluInput same{FloatType::kBF16, 50, got.data(gate), got.data(up)};
  swiglu_backward_ref(same, got.data(dy), got.data(gate), got.data(up), got.data(y));
  EXPECT_EQ(got.bytes(), want.bytes());
}

#ifdef LFT_HAVE_CUDA
/// In units of 2^-23: the exponential is within 2 + 1.173 |gate| (CUDA's guide), the quotient
/// within 2; four other roundings of half a unit or less, then that of the stored type. dgate
/// may cancel in 1 + g (1 - s), so its bound is that of its parts; where s is nearly 1, the error
/// of s (2 of the quotient, half of 1 + exp) is multiplied by g.
void expect_gpu_equals_ref(FloatType type, int64_t n, int64_t misaligned) {
  const double stored = test::rounding(type), least = test::least_rounding(type);
  test::Arena start;
  const size_t dy = start.add(type, n, misaligned), gate = start.add(type, n, misaligned),
               up = start.add(type, n, misaligned);
  const size_t y = start.add(type, n, misaligned), dgate = start.add(type, n, misaligned),
               dup = start.add(type, n, misaligned);
  start.fill_normal(dy, 1, 1);
  start.fill_normal(gate, 2, 4);
  start.fill_normal(up, 3, 1);
  test::Arena want = start;
  const SwigluInput in{type, n, want.data(gate), want.data(up)};
  swiglu_ref(in, want.data(y));
  swiglu_backward_ref(in, want.data(dy), want.data(dgate), want.data(dup), nullptr);
  test::DeviceArray<uint8_t> bytes(start.bytes());
  ASSERT_TRUE(bytes.ok());
  const auto at = [&](size_t a) {
    return static_cast<void*>(bytes.data() + start.arrays()[a].offset);
  };
  const SwigluInput there{type, n, at(gate), at(up)};
  swiglu(there, at(y), nullptr);
  swiglu_backward(there, at(dy), at(dgate), at(dup), nullptr, nullptr);
  test::Arena got = start;
  got.bytes() = bytes.to_host();
  for (int64_t i = 0; i < n; ++i) {
    const double g = start.get(gate, i), s = 1 / (1 + std::exp(-g)), d = std::abs(start.get(dy, i)),
                 u = std::abs(start.get(up, i));
    const double relative = 2 * stored + (6 + 1.173 * std::abs(g)) * 0x1p-23;
    ASSERT_NEAR(got.get(y, i), want.get(y, i), std::abs(want.get(y, i)) * relative + least) << i;
    ASSERT_NEAR(got.get(dup, i), want.get(dup, i), std::abs(want.get(dup, i)) * relative + least)
        << i;
    const double parts = d * u * s * (1 + std::abs(g) * (1 - s));
    const double of_s = d * u * s * 2.5 * std::abs(g) * 0x1p-23;
    ASSERT_NEAR(got.get(dgate, i), want.get(dgate, i), parts * relative + of_s + least) << i;
  }
}

TEST(SwigluGpu, EqualsTheReferenceOverSizesTypesAndAlignment) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t n : {1, 7, 8, 2047, 10007})
      expect_gpu_equals_ref(type, n, n == 2047 ? 1 : 0);
  }
}

/// The third result of the backward pass has the bits of the forward pass; the two others are
/// the same with and without it; each of the three may overwrite an input.
TEST(SwigluGpu, BackwardWithTheProductGivesTheBitsOfTwoPasses) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t n : {1, 7, 8, 2047, 10007}) {
      for (const int64_t misaligned : {0, 1}) {
        test::Arena start;
        const size_t dy = start.add(type, n), gate = start.add(type, n), up = start.add(type, n);
        const size_t y = start.add(type, n, misaligned), dgate = start.add(type, n),
                     dup = start.add(type, n);
        start.fill_normal(dy, 1, 1);
        start.fill_normal(gate, 2, 4);
        start.fill_normal(up, 3, 1);
        test::DeviceArray<uint8_t> bytes(start.bytes());
        ASSERT_TRUE(bytes.ok());
        const auto at = [&](size_t a) {
          return static_cast<void*>(bytes.data() + start.arrays()[a].offset);
        };
        const SwigluInput in{type, n, at(gate), at(up)};
        test::Arena apart = start, together = start, over = start;
        swiglu(in, at(y), nullptr);
        swiglu_backward(in, at(dy), at(dgate), at(dup), nullptr, nullptr);
        apart.bytes() = bytes.to_host();
        swiglu_backward(in, at(dy), at(dgate), at(dup), at(y), nullptr);
        together.bytes() = bytes.to_host();
        EXPECT_EQ(together.bytes(), apart.bytes()) << n;
        swiglu_backward(in, at(dy), at(dy), at(gate), at(up), nullptr);
        over.bytes() = bytes.to_host();
        EXPECT_EQ(over.values(dy), apart.values(dgate)) << n;
        EXPECT_EQ(over.values(gate), apart.values(dup)) << n;
        EXPECT_EQ(over.values(up), apart.values(y)) << n;
      }
    }
  }
}

/// The product's bits are those of the kernel without dropout; dropped ones match dropout().
TEST(SwigluGpu, DropoutInTheSamePassGivesTheBitsOfTwoPasses) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  const DropoutArgs args{.seed = 7, .stream = 11, .threshold = 20000, .scale = 1.4f};
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t n : {1, 7, 8, 2047, 10007}) {
      for (const int64_t misaligned : {0, 1, 4}) {
        test::Arena start;
        const size_t gate = start.add(type, n, misaligned), up = start.add(type, n, misaligned);
        const size_t y = start.add(type, n, misaligned), dropped = start.add(type, n),
                     alone = start.add(type, n);
        start.fill_normal(gate, 2, 4);
        start.fill_normal(up, 3, 1);
        test::DeviceArray<uint8_t> bytes(start.bytes());
        ASSERT_TRUE(bytes.ok());
        const auto at = [&](size_t a) {
          return static_cast<void*>(bytes.data() + start.arrays()[a].offset);
        };
        const SwigluInput in{type, n, at(gate), at(up)};
        swiglu_dropout(in, at(y), at(dropped), args, nullptr);
        swiglu_dropout(in, nullptr, at(alone), args, nullptr);
        test::Arena got = start;
        got.bytes() = bytes.to_host();
        swiglu(in, at(y), nullptr);
        test::Arena plain = start;
        plain.bytes() = bytes.to_host();
        EXPECT_EQ(got.values(y), plain.values(y));
        dropout_ref(type, plain.data(y), plain.data(dropped), n, args);
        EXPECT_EQ(got.values(dropped), plain.values(dropped)) << n;
        EXPECT_EQ(got.values(alone), got.values(dropped));
        EXPECT_EQ(got.values(gate), start.values(gate));
        swiglu_dropout(in, at(gate), at(up), args, nullptr);  // over its inputs
        got.bytes() = bytes.to_host();
        EXPECT_EQ(got.values(gate), plain.values(y));
        EXPECT_EQ(got.values(up), plain.values(dropped));
      }
    }
  }
}

/// sigmoid(gate) is the approximate quotient 1 / 1, within 2 units in the last place below 1:
/// 2^-22.
TEST(SwigluGpu, SaturatedGatesGiveNoNan) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  test::Arena start;
  const size_t gate = start.put(FloatType::kF32, {-200, -90, 90, 200}),
               one = start.put(FloatType::kF32, {1, 1, 1, 1});
  const size_t dgate = start.add(FloatType::kF32, 4), dup = start.add(FloatType::kF32, 4);
  test::DeviceArray<uint8_t> bytes(start.bytes());
  const auto at = [&](size_t a) {
    return static_cast<void*>(bytes.data() + start.arrays()[a].offset);
  };
  swiglu_backward({FloatType::kF32, 4, at(gate), at(one)}, at(one), at(dgate), at(dup), nullptr,
                  nullptr);
  start.bytes() = bytes.to_host();
  EXPECT_EQ(start.get(dgate, 0), 0);
  EXPECT_EQ(start.get(dgate, 1), 0);
  EXPECT_NEAR(start.get(dgate, 2), 1, (2 + 90) * 0x1p-22);
  EXPECT_NEAR(start.get(dgate, 3), 1, (2 + 200) * 0x1p-22);
  EXPECT_NEAR(start.get(dup, 3), 200, 200 * (0x1p-22 + 0x1p-24));
}
#endif

}  // namespace
}  // namespace lft::swiglu_test
