// The dropout reference: known Philox blocks, rate, and every float type.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/arena.h"
#include "kernels/common/philox.h"
#include "kernels/dropout/dropout.h"

namespace lft::dropout_test {
namespace {

DropoutArgs half_dropped(bool add) {
  return {.seed = 7, .stream = 11, .threshold = 32768, .scale = 2.0f, .add = add};
}

TEST(DropoutRef, FollowsTheBitsOfPhilox) {
  const std::vector<float> x(21, 1.5f);
  std::vector<float> y(x.size(), -1);
  dropout_ref(FloatType::kF32, x.data(), y.data(), 21, half_dropped(false));
  for (int i = 0; i < 21; ++i) {
    const uint32_t word = philox_block(7, 11, uint64_t(i / 8)).word[i % 8 / 2];
    const bool kept =
        ((i % 2 == 0 ? word & 0xFFFFu : word >> 16) & 0x8000u) != 0;  // at least 32768
    EXPECT_EQ(y[i], kept ? 3.0f : 0.0f) << i;
  }
}

TEST(DropoutRef, AddsInPlaceAndKeepsTheRate) {
  constexpr int64_t kCount = 100000;
  std::vector<float> x(kCount, 1.0f), y(kCount, 10.0f);
  dropout_ref(FloatType::kF32, x.data(), y.data(), kCount,
              {.seed = 1, .stream = 2, .threshold = 6554, .scale = 1.0f, .add = true});
  int64_t kept = 0;
  for (const float value : y) {
    ASSERT_TRUE(value == 10.0f || value == 11.0f);
    kept += value == 11.0f;
  }
  const double p = 1 - 6554 / 65536.0;
  EXPECT_NEAR(kept, p * kCount, 5 * std::sqrt(kCount * p * (1 - p)));  // five standard deviations
}

TEST(FloatTypes, EveryHalfAndBfloatBitPatternRoundTrips) {
  for (const FloatType type : {FloatType::kBF16, FloatType::kF16}) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const std::vector<uint16_t> from = {static_cast<uint16_t>(bits), 0};
      const float wide = load_float(type, from.data(), 0);
      std::vector<uint16_t> back(2);
      store_float(type, back.data(), 0, wide);
      if (std::isnan(wide)) {
        EXPECT_TRUE(std::isnan(load_float(type, back.data(), 0)));
      } else {
        EXPECT_EQ(back, from);
      }
    }
  }
}

TEST(FloatTypes, RoundsToNearestEven) {
  const auto stored = [](FloatType type, float value) {
    std::vector<uint16_t> out(2);
    store_float(type, out.data(), 0, value);
    return out[0];
  };
  EXPECT_EQ(stored(FloatType::kF16, 1.0f + 0x1p-11f), 0x3C00);  // half way between 1 and 1 + 2^-10
  EXPECT_EQ(stored(FloatType::kF16, 65519.996f), 0x7BFF);       // below half way to 65536
  EXPECT_EQ(stored(FloatType::kF16, 65520.0f), 0x7C00);
  EXPECT_EQ(stored(FloatType::kF16, 0x1p-25f), 0);  // half of the least denormal: ties to zero
  EXPECT_EQ(stored(FloatType::kBF16, 1.0f + 0x1p-8f), 0x3F80);
}

#ifdef LFT_HAVE_CUDA
/// The whole arena after a call of the kernel and of the reference: nothing except y
/// changes.
void expect_gpu_equals_ref(const test::Arena& start, FloatType type, size_t x, size_t y,
                           const DropoutArgs& args) {
  test::Arena want = start;
  const test::Array &from = start.arrays()[x], &to = start.arrays()[y];
  dropout_ref(type, want.data(x), want.data(y), to.count, args);
  test::Arena got = start;
  test::DeviceArray<uint8_t> bytes(got.bytes());
  ASSERT_TRUE(bytes.ok());
  dropout(type, bytes.data() + from.offset, bytes.data() + to.offset, to.count, args, nullptr);
  EXPECT_EQ(bytes.to_host(), want.bytes())
      << to.count << (args.add ? " added" : "") << " from " << from.offset << " to " << to.offset;
}

TEST(DropoutGpu, EqualsTheReferenceBitForBit) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t n : {1, 7, 8, 9, 2049, 100003}) {
      for (const bool add : {false, true}) {
        test::Arena start;
        const size_t x = start.add(type, n), y = start.add(type, n);
        start.add(type, 3);  // what must not change
        for (int64_t i = 0; i < n; ++i) start.set(x, i, std::sin(float(i))), start.set(y, i, 0.25f);
        expect_gpu_equals_ref(start, type, x, y, half_dropped(add));
      }
    }
  }
}

/// Either array may start anywhere. 4 elements further, float32 is aligned to 16 bytes, not to 32.
TEST(DropoutGpu, EqualsTheReferenceAtEveryAlignment) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t at_x : {0, 1, 4, 8}) {
      for (const int64_t at_y : {0, 3, 4}) {
        test::Arena start;
        const size_t x = start.add(type, 1003, at_x), y = start.add(type, 1003, at_y);
        start.fill_normal(x, 1, 1);
        start.fill_normal(y, 2, 1);
        for (const bool add : {false, true})
          expect_gpu_equals_ref(start, type, x, y, half_dropped(add));
      }
    }
  }
}

TEST(DropoutGpu, WorksInPlace) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t misaligned : {0, 1}) {
      test::Arena start;
      const size_t x = start.add(type, 2051, misaligned);
      start.fill_normal(x, 3, 1);
      for (const bool add : {false, true})
        expect_gpu_equals_ref(start, type, x, x, half_dropped(add));
    }
  }
}

/// Random values on both sides of the threshold, at its ends; a dropped element is always 0.
TEST(DropoutGpu, KeepsWhatIsAtTheThresholdAndDropsInfinities) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  const PhiloxBlock first = philox_block(7, 11, 0);
  for (const uint32_t draw :
       {first.word[0] & 0xFFFFu, first.word[0] >> 16, uint32_t{0}, uint32_t{65535}}) {
    for (const uint32_t threshold : {draw, draw == 65535 ? draw : draw + 1}) {
      test::Arena start;
      const size_t x = start.put(FloatType::kF32, {INFINITY, -INFINITY, 1, 2, 3, 4, 5, 6, 7});
      const size_t y = start.add(FloatType::kF32, 9);
      DropoutArgs args = half_dropped(false);
      args.threshold = threshold;
      expect_gpu_equals_ref(start, FloatType::kF32, x, y, args);
    }
  }
}

TEST(DropoutGpu, ReadsItsStreamFromTheDeviceWhereItIsToldTo) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  const std::vector<float> x(1003, 1.5f);
  std::vector<float> want(x.size());
  dropout_ref(FloatType::kF32, x.data(), want.data(), 1003, half_dropped(false));
  test::DeviceArray<float> dx(x), dy(std::vector<float>(x.size(), -1.f));
  test::DeviceArray<uint64_t> stream(std::vector<uint64_t>{3, half_dropped(false).stream});
  ASSERT_TRUE(dx.ok() && dy.ok() && stream.ok());
  DropoutArgs args = half_dropped(false);
  args.stream = 12345;  // not this one
  args.stream_at = stream.data() + 1;
  dropout(FloatType::kF32, dx.data(), dy.data(), 1003, args, nullptr);
  EXPECT_EQ(dy.to_host(), want);
}
#endif

}  // namespace
}  // namespace lft::dropout_test
