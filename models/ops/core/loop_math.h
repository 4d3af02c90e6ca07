// Helpers of the files with loops: the 16-bit conversions, which agree with
// kernels/common/float_type.h, and exp. Only for files that are compiled with -O3 and without the
// shared precompiled header (models/CMakeLists.txt).
#pragma once
#include <bit>
#include <cstdint>

#include "models/ops/core/cpu_loops.h"
#include "models/ops/core/loop_build.h"

namespace lft::ops::loops {

LFT_INLINE float load(const float* p) { return *p; }
LFT_INLINE double load(const double* p) { return *p; }
LFT_INLINE float load(const Bf16* p) {
  return std::bit_cast<float>(static_cast<uint32_t>(p->x) << 16);
}
/// Branch-free, so that it vectorises: all cases are computed, and one result is selected.
LFT_INLINE float load(const Half* p) {
  const uint32_t magnitude = p->x & 0x7FFFu, sign = static_cast<uint32_t>(p->x & 0x8000u) << 16;
  const uint32_t special =
      magnitude >= 0x7C00u ? 112u << 23 : 0u;  // infinity and NaN take the largest exponent
  const uint32_t normal = (magnitude << 13) + (112u << 23) + special;
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(0x3F000000u | magnitude) -
                                                 0.5f);  // 0.5 has steps of 2^-24
  return std::bit_cast<float>((magnitude < 0x400u ? small : normal) | sign);
}
LFT_INLINE void store(float* p, float value) { *p = value; }
LFT_INLINE void store(double* p, double value) { *p = value; }
LFT_INLINE void store(Bf16* p, float value) {  // round to nearest, ties to even; NaN stays NaN
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  p->x = static_cast<uint16_t>(value != value ? 0x7FC0u : rounded);
}
LFT_INLINE void store(Half* p, float value) {  // the same; beyond 65,504 infinity
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7FFFFFFFu;
  const uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                         0x3F000000u;  // below 2^-14: steps of 2^-24
  const uint32_t finite = magnitude < 0x38800000u ? small : normal;
  const uint32_t special = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
  p->x =
      static_cast<uint16_t>((magnitude >= 0x47800000u ? special : finite) | (bits >> 16 & 0x8000u));
}

/// exp to 2 ulp, branch-free so that it vectorises (Cephes' expf). Beyond +-88 it saturates; NaN
/// stays NaN.
LFT_INLINE float fast_exp(float x) {
  x = x > 88.0f ? 88.0f : x;
  x = x < -87.0f ? -87.0f : x;
  const float shifted = x * 1.44269504088896341f +
                        12582912.0f;  // 1.5 * 2^23: the sum's low bits are the rounded integer
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float mantissa = p * r * r + r + 1.0f;
  const uint32_t exponent =
      (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(12582912.0f) + 127u) << 23;
  return mantissa * std::bit_cast<float>(exponent);
}

}  // namespace lft::ops::loops
