// Rows of numbers in float8_e4m3fn (OCP FP8: four exponent bits, three fraction bits, no
// infinities, maximum 448) with one scale per row.
#pragma once
#include <cstring>

#include "kernels/common/float_type.h"
#include "kernels/common/host_device.h"

namespace lft {

constexpr float kFp8Most = 448;
constexpr float kFp8LeastRow =
    0x1p-100f;  // the minimum magnitude that the scale of a row is computed from
constexpr uint8_t kFp8Nan = 0x7F;

/// The code of the number nearest to x, ties to even; +-448 for larger finite numbers; NaN for
/// non-finite ones.
LFT_HOST_DEVICE uint8_t to_e4m3(float x) {
  uint32_t bits, rounded;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude >= 0x7F800000u) return kFp8Nan;
  if (magnitude >= 0x43E00000u) return static_cast<uint8_t>(sign | 0x7Eu);  // 448
  if (magnitude >= 0x3C800000u)
    return static_cast<uint8_t>(
        sign | ((magnitude - 0x3C000000u + 0x7FFFFu + ((magnitude >> 20) & 1u)) >> 20));
  float absolute;  // below 2^-6 codes are multiples of 2^-9, as are floats near 2^14
  memcpy(&absolute, &magnitude, sizeof absolute);
  absolute += 16384.0f;
  memcpy(&rounded, &absolute, sizeof rounded);
  return static_cast<uint8_t>(sign | (rounded - 0x46800000u));
}

/// The exact value of a code.
LFT_HOST_DEVICE float from_e4m3(uint8_t code) {
  const uint32_t exponent = (code >> 3) & 15u, fraction = code & 7u;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-9f;
    return code >= 0x80u ? -magnitude : magnitude;
  }
  const uint32_t bits =
      (static_cast<uint32_t>(code & 0x80u) << 24) |
      ((code & 0x7Fu) == kFp8Nan ? 0x7FC00000u : ((exponent + 120u) << 23) | (fraction << 20));
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// The factors for quantizing and dequantizing one row. `most`: the bits of its largest magnitude
/// (those of a NaN are above infinity's).
struct Fp8RowScale {
  float up, scale;  // code = to_e4m3(x * up), x is about from_e4m3(code) * scale
};
LFT_HOST_DEVICE Fp8RowScale fp8_row_scale(uint32_t most) {
  const bool finite = most < 0x7F800000u;
  if (!finite) most = 0x7FC00000u;
  float magnitude;
  memcpy(&magnitude, &most, sizeof magnitude);
  if (!finite) return {magnitude, magnitude};
  if (magnitude < kFp8LeastRow) magnitude = kFp8LeastRow;
  return {kFp8Most / magnitude, magnitude / kFp8Most};
}

/// x: [rows, cols] of `type`, row-major.
struct Fp8Rows {
  int64_t rows = 0, cols = 0;
  FloatType type = FloatType::kF32;
  const void* x = nullptr;
  uint8_t* codes = nullptr;  // [rows, cols]
  float* scales = nullptr;   // [rows]: the row's largest magnitude / 448
};

/// A row of zeros has codes 0 and the scale of kFp8LeastRow; a row with a NaN or an infinity has
/// scale NaN and NaN codes, so that all its products are non-finite. Each operation is rounded to
/// float32.
void fp8_quantize_rows_ref(const Fp8Rows& rows);
/// The same bits on the GPU, asynchronous. Only in builds with CUDA. Throws kInternal if the launch
/// fails.
void fp8_quantize_rows(const Fp8Rows& rows, Stream stream);

}  // namespace lft
