// NF4: codes and values against the definition, the error bound of the format, the kernel against
// the reference bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/arena.h"
#include "kernels/nf4/nf4.h"

namespace lft::nf4_test {
namespace {

/// Quantised weights and the memory that contains them.
struct Stored {
  explicit Stored(const std::vector<float>& w)
      : codes((w.size() + 1) / 2),
        scale_codes(nf4_blocks(static_cast<int64_t>(w.size()))),
        scale_absmax(nf4_scale_blocks(static_cast<int64_t>(w.size()))) {
    weight = {static_cast<int64_t>(w.size()), codes.data(), scale_codes.data(), scale_absmax.data(),
              0};
    // In two parts: blocks are independent of each other.
    std::vector<float> scales(scale_codes.size());
    const int64_t blocks = nf4_blocks(weight.count), half = blocks / 2;
    nf4_quantize_blocks(w.data(), half, blocks - half, scales.data(), weight);
    nf4_quantize_blocks(w.data(), 0, half, scales.data(), weight);
    nf4_quantize_scales(scales.data(), weight);
  }
  Stored(const Stored&) = delete;
  std::vector<float> values() const {
    std::vector<float> out(weight.count);
    nf4_dequantize_ref(weight, FloatType::kF32, {0, weight.count}, out.data());
    return out;
  }
  std::vector<uint8_t> codes, scale_codes;
  std::vector<float> scale_absmax;
  Nf4Weight weight;
};

std::vector<float> normal(int64_t count, uint32_t seed, float sigma) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0, sigma);
  std::vector<float> w(count);
  for (float& value : w) value = draw(random);
  return w;
}

/// The values are quantiles of the normal distribution, 8 on the negative and 9 on the positive
/// side between 1 - offset and one half, over the largest (QLoRA, appendix E; offset 0.9677083 as
/// in its code).
TEST(Nf4, TheValuesAreNormalQuantiles) {
  const auto quantile = [](double p) {  // bisection of the distribution function
    double low = -10, high = 10;
    for (int i = 0; i < 200; ++i) {
      const double middle = (low + high) / 2;
      (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
    }
    return low;
  };
  constexpr double kOffset = 0.9677083;
  const double top = quantile(kOffset);
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(nf4_map().value[15 - i], quantile(kOffset + (0.5 - kOffset) * i / 8) / top, 1e-6)
        << i;
  }
  for (int i = 0; i < 7; ++i) {
    EXPECT_NEAR(nf4_map().value[i], -quantile(kOffset + (0.5 - kOffset) * i / 7) / top, 1e-6) << i;
  }
  EXPECT_EQ(nf4_map().value[7], 0);
}

TEST(Nf4, WeightsOnTheGridComeBackExactlyAndPackHighHalfFirst) {
  std::vector<float> w;
  for (int i = 0; i < 64; ++i) w.push_back(nf4_map().value[(i * 5) % 16]);
  const Stored stored(w);
  EXPECT_EQ(stored.codes[0], 0x05);
  EXPECT_EQ(stored.codes[1], 0xAF);
  EXPECT_EQ(stored.weight.scale_offset, 1);  // one block with scale 1: no difference remains
  EXPECT_EQ(stored.values(), w);
}

TEST(Nf4, HalfWayIsTheLowerValueAndZerosStayZero) {
  std::vector<float> w(64, 0.0f);
  w[0] = 1;
  w[1] = (nf4_map().value[8] + nf4_map().value[9]) / 2;
  const std::vector<float> values = Stored(w).values();
  EXPECT_EQ(values[1], nf4_map().value[8]);
  EXPECT_EQ(values[2], 0);
  for (const float value : Stored(std::vector<float>(130, 0.0f)).values()) EXPECT_EQ(value, 0);
}

/// A weight changes by half the widest gap of the values (between -1 and -0.696) times its block's
/// scale, and by the error of the scale: half the widest gap of the dynamic map (0.9 / 64 between
/// 0.1 and 1) times the scales' largest distance from their mean.
TEST(Nf4, TheErrorIsThatOfTheFormat) {
  for (const int64_t count : {1, 63, 64, 65, 16384 + 7, 40001}) {
    const std::vector<float> w = normal(count, 3, 0.02f);
    const Stored stored(w);
    const std::vector<float> values = stored.values();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = i / kNf4Block * kNf4Block, end = std::min(first + kNf4Block, count);
      float scale = 0;
      for (int64_t k = first; k < end; ++k) scale = std::max(scale, std::abs(w[k]));
      const double scale_error =
          0.9 / 64 / 2 * stored.scale_absmax[i / kNf4Block / kNf4ScaleBlock] * 1.0001;
      ASSERT_LE(std::abs(values[i] - w[i]), 0.1520 * scale + scale_error + 1e-9) << i;
    }
  }
}

#ifdef LFT_HAVE_CUDA
/// Also for a block of zeros, and weights half-way between two values.
TEST(Nf4Gpu, QuantizesAsTheReferenceBitForBit) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t count : {1, 2, 63, 64, 65, 128, 70001}) {
      std::vector<float> w = normal(count, 9, 1);
      for (int64_t i = 64; i < std::min<int64_t>(count, 128); ++i) w[i] = 0;
      for (int64_t k = 0; k < 15 && k + 1 < count; ++k) w[k] = nf4_middles().value[k];
      w[std::min<int64_t>(count - 1, 15)] = 1;
      std::vector<uint8_t> stored(count * float_type_size(type));
      for (int64_t i = 0; i < count; ++i) {
        store_float(type, stored.data(), i, w[i]);
        w[i] = load_float(type, stored.data(), i);
      }
      std::vector<uint8_t> codes((count + 1) / 2);
      std::vector<float> scales(nf4_blocks(count));
      nf4_quantize_blocks(w.data(), 0, nf4_blocks(count), scales.data(),
                          {count, codes.data(), nullptr, nullptr, 0});
      test::DeviceArray<uint8_t> from(stored), got(std::vector<uint8_t>(codes.size(), 0xAB));
      test::DeviceArray<float> got_scales(std::vector<float>(scales.size(), -1));
      nf4_quantize_on_device(type, from.data(), count, got_scales.data(), got.data(), nullptr);
      EXPECT_EQ(got.to_host(), codes) << count;
      EXPECT_EQ(got_scales.to_host(), scales) << count;
    }
  }
}

TEST(Nf4Gpu, EqualsTheReferenceBitForBit) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const int64_t count : {1, 64, 129, 70001}) {
    const Stored stored(normal(count, 5, 1));
    const std::vector<float> map(code_maps().exp_avg.value, code_maps().exp_avg.value + 256);
    test::DeviceArray<uint8_t> codes(stored.codes), scale_codes(stored.scale_codes);
    test::DeviceArray<float> absmax(stored.scale_absmax), values(map);
    const Nf4Weight on_device = {count, codes.data(), scale_codes.data(), absmax.data(),
                                 stored.weight.scale_offset};
    for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
      for (const int64_t first : {int64_t{0}, std::min<int64_t>(64, count / 64 * 64)}) {
        const int64_t n = count - first;
        std::vector<uint8_t> want(n * float_type_size(type));
        nf4_dequantize_ref(stored.weight, type, {first, n}, want.data());
        test::DeviceArray<uint8_t> got(std::vector<uint8_t>(want.size(), 0xAB));
        nf4_dequantize(on_device, values.data(), type, {first, n}, got.data(), nullptr);
        EXPECT_EQ(got.to_host(), want) << count;
      }
    }
  }
}
#endif

}  // namespace
}  // namespace lft::nf4_test
