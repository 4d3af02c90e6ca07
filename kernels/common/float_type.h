// The float types that kernels accept, as an enum, and their conversion on the host for references.
// Needs no CUDA header.
#pragma once
#include <cstdint>
#include <cstring>

struct CUstream_st;  // cudaStream_t is a pointer to this struct

namespace lft {

enum class FloatType { kF32, kBF16, kF16 };
using Stream = CUstream_st*;

inline int64_t float_type_size(FloatType type) { return type == FloatType::kF32 ? 4 : 2; }

inline float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// Element `index` of an array of `type`, converted exactly.
inline float load_float(FloatType type, const void* data, int64_t index) {
  if (type == FloatType::kF32) return static_cast<const float*>(data)[index];
  const uint32_t bits = static_cast<const uint16_t*>(data)[index];
  if (type == FloatType::kBF16) return bits_to_float(bits << 16);
  const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u,
                 mantissa = bits & 0x3FFu;
  if (exponent == 31) return bits_to_float(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude =
      static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24: a subnormal
  return sign != 0 ? -magnitude : magnitude;
}

/// Stores `value` as `type`, rounding to nearest, ties to even.
inline void store_float(FloatType type, void* data, int64_t index, float value) {
  if (type == FloatType::kF32) {
    static_cast<float*>(data)[index] = value;
    return;
  }
  uint16_t* to = static_cast<uint16_t*>(data) + index;
  const uint32_t bits = float_to_bits(value), magnitude = bits & 0x7FFFFFFFu;
  if (type == FloatType::kBF16) {
    *to = magnitude > 0x7F800000u
              ? static_cast<uint16_t>((bits >> 16) | 0x40u)
              : static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
    return;
  }
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  if (magnitude > 0x7F800000u) {
    *to = static_cast<uint16_t>(sign | 0x7E00u);
  } else if (magnitude >= 0x477FF000u) {  // rounds to 65536 or more
    *to = static_cast<uint16_t>(sign | 0x7C00u);
  } else if (magnitude >= 0x38800000u) {  // normal
    *to = static_cast<uint16_t>(
        sign | ((magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13));
  } else {  // subnormal: adding 0.5 makes the float unit round to multiples of 2^-24
    *to = static_cast<uint16_t>(sign |
                                (float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3F000000u));
  }
}

}  // namespace lft
