// quick_gelu: the reference against closed forms and finite differences in double, the kernel
// against the reference.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/arena.h"
#include "kernels/quick_gelu/quick_gelu.h"

namespace lft::quick_gelu_test {
namespace {

constexpr FloatType kTypes[] = {FloatType::kF32, FloatType::kBF16, FloatType::kF16};

TEST(QuickGeluRef, KnownValues) {
  const std::vector<float> x = {0, 1, -1, 30, -100, 200};
  std::vector<float> y(6);
  quick_gelu_ref(FloatType::kF32, x.data(), y.data(), 6);
  EXPECT_EQ(y[0], 0);
  EXPECT_FLOAT_EQ(y[1], static_cast<float>(1 / (1 + std::exp(-1.702))));
  EXPECT_FLOAT_EQ(y[2], static_cast<float>(-1 / (1 + std::exp(1.702))));
  EXPECT_EQ(y[3], 30);  // exp(-51) is below half a unit of 1
  EXPECT_EQ(y[4], 0);   // 100 exp(-170) is below the least float
  EXPECT_EQ(y[5], 200);
}

/// Central differences in double: h^2 / 6 of a third derivative below 5, and rounding of values
/// below 10 over 2 h, are below 1e-9; the reference rounds once, by 2^-24 of a gradient below 2.
TEST(QuickGeluRef, BackwardEqualsFiniteDifferences) {
  constexpr double kStep = 1e-5;
  const auto value = [](double x) { return x / (1 + std::exp(-double{kQuickGelu} * x)); };
  for (const float x : {-9.0f, -4.0f, -1.3f, -0.1f, 0.0f, 0.7f, 2.5f, 8.0f}) {
    const float dy = 1.5f;
    float dx = 0;
    quick_gelu_backward_ref(FloatType::kF32, &dy, &x, &dx, 1);
    const double slope = (value(x + kStep) - value(x - kStep)) / (2 * kStep);
    EXPECT_NEAR(dx, dy * slope, 2 * 0x1p-24 + 1e-9) << x;
  }
}

#ifdef LFT_HAVE_CUDA
/// In units of 2^-23: 1.702 x has an error of half a unit, which the exponential multiplies by its
/// argument's magnitude, and it is itself within 2 + 1.173 |1.702 x| (CUDA's guide): 2 + 2.85 |x|
/// together. The quotient is within 2, four other roundings are half a unit or less; then
/// that of the stored type. dx may cancel in 1 + 1.702 x (1 - s), so its bound is that of its
/// parts; where s is nearly 1, the error of s (2 of the quotient, half of 1 + exp) is multiplied
/// by 1.702 x.
void expect_gpu_equals_ref(FloatType type, int64_t n, int64_t misaligned, bool in_place) {
  const double stored = test::rounding(type), least = test::least_rounding(type);
  test::Arena start;
  const size_t x = start.add(type, n, misaligned), dy = start.add(type, n),
               y = start.add(type, n, misaligned);
  const size_t dx = start.add(type, n);
  start.add(type, 3);  // what must not change
  start.fill_normal(x, 1, 3);
  start.fill_normal(dy, 2, 1);
  test::Arena want = start;
  quick_gelu_ref(type, want.data(x), want.data(y), n);
  quick_gelu_backward_ref(type, want.data(dy), want.data(x), want.data(dx), n);
  test::DeviceArray<uint8_t> bytes(start.bytes());
  ASSERT_TRUE(bytes.ok());
  const auto at = [&](size_t a) {
    return static_cast<void*>(bytes.data() + start.arrays()[a].offset);
  };
  const size_t to_dx = in_place ? dy : dx, to_y = in_place ? x : y;
  quick_gelu_backward(type, at(dy), at(x), at(to_dx), n, nullptr);
  quick_gelu(type, at(x), at(to_y), n, nullptr);
  test::Arena got = start;
  got.bytes() = bytes.to_host();
  for (int64_t i = 0; i < n; ++i) {
    const double z = start.get(x, i), t = double{kQuickGelu} * z, s = 1 / (1 + std::exp(-t));
    const double d = std::abs(start.get(dy, i));
    const double relative = 2 * stored + (6 + 2.85 * std::abs(z)) * 0x1p-23;
    ASSERT_NEAR(got.get(to_y, i), want.get(y, i), std::abs(want.get(y, i)) * relative + least) << i;
    const double parts = d * s * (1 + std::abs(t) * (1 - s));
    const double of_s = d * s * 2.5 * std::abs(t) * 0x1p-23;
    ASSERT_NEAR(got.get(to_dx, i), want.get(dx, i), parts * relative + of_s + least) << i;
  }
  for (const size_t written : {to_y, to_dx}) {  // the rest of the arena is unchanged
    for (int64_t i = 0; i < n; ++i) got.set(written, i, start.get(written, i));
  }
  EXPECT_EQ(got.bytes(), start.bytes());
}

TEST(QuickGeluGpu, EqualsTheReferenceOverSizesTypesAndAlignment) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : kTypes) {
    for (const int64_t n : {1, 7, 8, 2047, 2048, 10007}) {
      for (const int64_t misaligned : {0, 1, 4})
        expect_gpu_equals_ref(type, n, misaligned, /*in_place=*/false);
    }
  }
}

TEST(QuickGeluGpu, WorksInPlace) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : kTypes) {
    for (const int64_t misaligned : {0, 1})
      expect_gpu_equals_ref(type, 2049, misaligned, /*in_place=*/true);
  }
}

/// The kernel's gradient against central differences of the closed form over [-12, 12]. The bound
/// is that of expect_gpu_equals_ref, plus the differences' own 1e-9.
TEST(QuickGeluGpu, BackwardEqualsFiniteDifferencesInDouble) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  constexpr int64_t kCount = 4801;
  constexpr double kStep = 1e-5;
  const auto value = [](double x) { return x / (1 + std::exp(-double{kQuickGelu} * x)); };
  std::vector<float> points(kCount);
  for (int64_t i = 0; i < kCount; ++i) points[i] = static_cast<float>(i - kCount / 2) / 200;
  test::DeviceArray<float> x(points), dy(std::vector<float>(kCount, 1.0f)),
      dx(std::vector<float>(kCount, -1.0f));
  ASSERT_TRUE(x.ok() && dy.ok() && dx.ok());
  quick_gelu_backward(FloatType::kF32, dy.data(), x.data(), dx.data(), kCount, nullptr);
  const std::vector<float> got = dx.to_host();
  for (int64_t i = 0; i < kCount; ++i) {
    const double z = points[i], t = double{kQuickGelu} * z, s = 1 / (1 + std::exp(-t));
    const double parts = s * (1 + std::abs(t) * (1 - s)) * (7 + 2.85 * std::abs(z));
    const double bound = (parts + s * 2.5 * std::abs(t)) * 0x1p-23 + 1e-9;
    ASSERT_NEAR(got[i], (value(z + kStep) - value(z - kStep)) / (2 * kStep), bound) << z;
  }
}

/// sigmoid(t) is the approximate quotient 1 / 1, within 2 units in the last place below 1: 2^-22.
TEST(QuickGeluGpu, SaturatedInputsGiveNoNanAndNanStays) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  const std::vector<float> points = {-200, -60, 60, 200, NAN};
  test::DeviceArray<float> x(points), y(points), dx(points), dy(std::vector<float>(5, 1.0f));
  ASSERT_TRUE(x.ok() && y.ok() && dx.ok() && dy.ok());
  quick_gelu(FloatType::kF32, x.data(), y.data(), 5, nullptr);
  quick_gelu_backward(FloatType::kF32, dy.data(), x.data(), dx.data(), 5, nullptr);
  const std::vector<float> values = y.to_host(), gradients = dx.to_host();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(values[i], 0);
    EXPECT_EQ(gradients[i], 0);
  }
  for (size_t i = 2; i < 4; ++i) {
    EXPECT_NEAR(values[i], points[i], points[i] * (0x1p-22 + 0x1p-24));
    EXPECT_NEAR(gradients[i], 1, (2 + double{kQuickGelu} * points[i]) * 0x1p-22);
  }
  EXPECT_TRUE(std::isnan(values[4]) && std::isnan(gradients[4]));
}
#endif

}  // namespace
}  // namespace lft::quick_gelu_test
