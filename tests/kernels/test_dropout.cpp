// The dropout reference: known Philox blocks, rate, and every float type.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/arena.h"
#include "kernels/common/philox.h"
#include "kernels/dropout/dropout.h"
#ifdef LFT_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace lft {
namespace {

DropoutArgs half_dropped(bool add) { return {.seed = 7, .stream = 11, .threshold = 32768, .scale = 2.0f, .add = add}; }

TEST(DropoutRef, FollowsTheBitsOfPhilox) {
  const std::vector<float> x(21, 1.5f);
  std::vector<float> y(x.size(), -1);
  dropout_ref(FloatType::kF32, x.data(), y.data(), 21, half_dropped(false));
  for (int i = 0; i < 21; ++i) {
    const uint32_t word = philox_block(7, 11, uint64_t(i / 8)).word[i % 8 / 2];
    const bool kept = ((i % 2 == 0 ? word & 0xFFFFu : word >> 16) & 0x8000u) != 0;  // at least 32768
    EXPECT_EQ(y[i], kept ? 3.0f : 0.0f) << i;
  }
}

TEST(DropoutRef, AddsInPlaceAndKeepsTheRate) {
  constexpr int64_t kCount = 100000;
  std::vector<float> x(kCount, 1.0f), y(kCount, 10.0f);
  dropout_ref(FloatType::kF32, x.data(), y.data(), kCount, {.seed = 1, .stream = 2, .threshold = 6554, .scale = 1.0f, .add = true});
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
TEST(DropoutGpu, EqualsTheReferenceBitForBit) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t n : {1, 7, 8, 9, 2049, 100003}) {
      std::vector<uint8_t> x(n * float_type_size(type)), want(x.size()), got(x.size());
      for (int64_t i = 0; i < n; ++i) store_float(type, x.data(), i, std::sin(float(i))), store_float(type, want.data(), i, 0.25f);
      void *dx = nullptr, *dy = nullptr;
      ASSERT_EQ(cudaMalloc(&dx, x.size()), cudaSuccess);
      ASSERT_EQ(cudaMalloc(&dy, x.size()), cudaSuccess);
      cudaMemcpy(dx, x.data(), x.size(), cudaMemcpyHostToDevice);
      cudaMemcpy(dy, want.data(), x.size(), cudaMemcpyHostToDevice);
      dropout_ref(type, x.data(), want.data(), n, half_dropped(true));
      dropout(type, dx, dy, n, half_dropped(true), nullptr);
      ASSERT_EQ(cudaMemcpy(got.data(), dy, got.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      EXPECT_EQ(got, want) << n;
      cudaFree(dx);
      cudaFree(dy);
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
}  // namespace lft
