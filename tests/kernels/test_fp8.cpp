// FP8 rows: the codes against the format's definition, the error bound of the format, non-finite
// values stay visible, the kernel against the reference bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/arena.h"
#include "kernels/fp8/fp8.h"

namespace lft::fp8_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(),
                kNan = std::numeric_limits<float>::quiet_NaN();

/// The value of a code, from the format's table: sign, four exponent bits with bias 7, three
/// fraction bits.
double defined(int code) {
  const int exponent = (code >> 3) & 15, fraction = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code >= 128 ? -magnitude : magnitude;
}

TEST(Fp8, CodesStandForTheNumbersOfTheFormat) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(from_e4m3(static_cast<uint8_t>(code)))) << code;
      continue;
    }
    EXPECT_EQ(from_e4m3(static_cast<uint8_t>(code)), defined(code)) << code;
    EXPECT_EQ(to_e4m3(from_e4m3(static_cast<uint8_t>(code))), code);
  }
  EXPECT_EQ(defined(126), kFp8Most);
}

/// Between two neighbouring codes the nearer one; in the middle the one whose last bit is 0.
TEST(Fp8, RoundsToTheNearestAndHalfWayToTheEvenCode) {
  for (int code = 0; code < 126; ++code) {
    const auto low = static_cast<float>(defined(code)),
               high = static_cast<float>(defined(code + 1)), middle = (low + high) / 2;
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(to_e4m3(middle), even) << code;
    EXPECT_EQ(to_e4m3(-middle), even + 128) << code;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, low)), code) << code;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, high)), code + 1) << code;
  }
}

TEST(Fp8, SaturatesFiniteNumbersOnly) {
  for (const float x : {448.0f, 463.0f, 500.0f, 1e30f, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(to_e4m3(x), 126);
    EXPECT_EQ(to_e4m3(-x), 254);
  }
  for (const float x : {kInf, -kInf, kNan}) EXPECT_EQ(to_e4m3(x), kFp8Nan);
  EXPECT_EQ(to_e4m3(0.0f), 0);
  EXPECT_EQ(to_e4m3(-0.0f), 128);
  EXPECT_EQ(to_e4m3(std::numeric_limits<float>::denorm_min()), 0);
}

struct Quantised {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  /// Compares bits, since a NaN does not equal itself.
  std::vector<uint32_t> scale_bits() const {
    std::vector<uint32_t> bits;
    for (const float scale : scales) bits.push_back(float_to_bits(scale));
    return bits;
  }
};

Quantised reference(int64_t rows, int64_t cols, FloatType type, const void* x) {
  Quantised result{std::vector<uint8_t>(rows * cols), std::vector<float>(rows)};
  fp8_quantize_rows_ref({rows, cols, type, x, result.codes.data(), result.scales.data()});
  return result;
}

/// A normal number changes by at most a sixteenth of its binade (half a step of three bits), below
/// 2^-6 by 2^-10, both in units of the scale; scaling up and down rounds three times.
TEST(Fp8, TheErrorIsThatOfTheFormat) {
  for (const float sigma : {1e-20f, 1e-3f, 1.0f, 1e20f}) {
    for (const int64_t cols : {1, 7, 64, 300}) {
      test::Arena arena;
      const size_t x = arena.add(FloatType::kF32, 5 * cols);
      arena.fill_normal(x, 7, sigma);
      const Quantised result = reference(5, cols, FloatType::kF32, arena.data(x));
      for (int64_t i = 0; i < 5 * cols; ++i) {
        const double value = arena.get(x, i), scale = result.scales[i / cols];
        const double back = from_e4m3(result.codes[i]) * scale;
        EXPECT_LE(std::abs(back - value),
                  std::max(std::abs(value) / 16, std::ldexp(scale, -10)) * (1 + 1e-6))
            << value;
      }
      for (int64_t row = 0; row < 5; ++row) {  // the largest is restored up to rounding
        float most = 0;
        for (int64_t c = 0; c < cols; ++c)
          most = std::max(most, std::abs(arena.get(x, row * cols + c)));
        EXPECT_FLOAT_EQ(result.scales[row] * kFp8Most, most);
      }
    }
  }
}

TEST(Fp8, RowsOfZerosAndOfTheLeastNumbersAreFinite) {
  const std::vector<float> x = {0, -0.0f, 1e-44f, 0, 0x1p-101f, -0x1p-101f, 3.4e38f, 1};
  const Quantised result = reference(4, 2, FloatType::kF32, x.data());
  EXPECT_EQ(result.codes,
            (std::vector<uint8_t>{0, 128, 0, 0, 118, 246, 126, 0}));  // half of 448 is code 118
  for (const float scale : result.scales) {
    EXPECT_GE(scale, std::numeric_limits<float>::min());
    EXPECT_TRUE(std::isfinite(scale));
  }
}

TEST(Fp8, ARowWithSomethingNotFiniteIsNotFiniteAndTheOthersAreAsEver) {
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const float bad : {kInf, -kInf, kNan}) {
      test::Arena arena;
      const size_t x = arena.add(type, 3 * 20), clean = arena.add(type, 3 * 20);
      arena.fill_normal(x, 3, 1);
      arena.fill_normal(clean, 3, 1);
      arena.set(x, 20 + 13, bad);
      const Quantised got = reference(3, 20, type, arena.data(x)),
                      want = reference(3, 20, type, arena.data(clean));
      for (int64_t i = 0; i < 60; ++i)
        EXPECT_EQ(got.codes[i], i / 20 == 1 ? kFp8Nan : want.codes[i]);
      EXPECT_EQ(got.scales[0], want.scales[0]);
      EXPECT_TRUE(std::isnan(got.scales[1]));
      EXPECT_EQ(got.scales[2], want.scales[2]);
    }
  }
}

#ifdef LFT_HAVE_CUDA
TEST(Fp8Gpu, EqualsTheReferenceBitForBit) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  struct Case {
    int64_t rows, cols, misaligned;
  };
  for (const Case& shape : {Case{1, 1, 0}, Case{3, 16, 0}, Case{5, 33, 0}, Case{4, 2064, 0},
                            Case{2, 4096, 1}, Case{7, 5001, 0}}) {
    for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
      test::Arena arena;
      const size_t x = arena.add(type, shape.rows * shape.cols, shape.misaligned);
      arena.fill_normal(x, 11, 3);
      if (shape.rows > 1) arena.set(x, shape.cols, 0);
      if (shape.rows > 2) arena.set(x, 2 * shape.cols + shape.cols / 2, kNan);
      const Quantised want = reference(shape.rows, shape.cols, type, arena.data(x));
      test::DeviceArray<uint8_t> bytes(arena.bytes()),
          codes(std::vector<uint8_t>(want.codes.size(), 0xAB));
      test::DeviceArray<float> scales(std::vector<float>(want.scales.size(), -1));
      fp8_quantize_rows({shape.rows, shape.cols, type, bytes.data() + arena.arrays()[x].offset,
                         codes.data(), scales.data()},
                        nullptr);
      EXPECT_EQ(codes.to_host(), want.codes) << shape.rows << " x " << shape.cols;
      EXPECT_EQ((Quantised{{}, scales.to_host()}).scale_bits(), want.scale_bits())
          << shape.rows << " x " << shape.cols;
    }
  }
}

TEST(Fp8Gpu, ConvertsEveryHalfAsTheReference) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  std::vector<uint16_t>
      x;  // each with 448 in its row, so that the scale is 1: the number itself is converted
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value =
        load_float(FloatType::kF16, std::vector<uint16_t>{static_cast<uint16_t>(bits)}.data(), 0);
    if (!(std::abs(value) <= kFp8Most)) continue;
    x.push_back(static_cast<uint16_t>(bits));
  }
  x.push_back(0x5F00);  // 448
  const auto count = static_cast<int64_t>(x.size());
  const Quantised want = reference(1, count, FloatType::kF16, x.data());
  ASSERT_EQ(want.scales[0], 1);
  test::DeviceArray<uint16_t> input(x);
  test::DeviceArray<uint8_t> codes(std::vector<uint8_t>(x.size(), 0xAB));
  test::DeviceArray<float> scales(std::vector<float>{-1});
  fp8_quantize_rows({1, count, FloatType::kF16, input.data(), codes.data(), scales.data()},
                    nullptr);
  EXPECT_EQ(codes.to_host(), want.codes);
}
#endif

}  // namespace
}  // namespace lft::fp8_test
