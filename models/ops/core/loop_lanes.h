// 16 floats in vectors of a processor's size, read from floats and 16-bit numbers. Sums have the
// same bits for every size. Vectors larger than the processor's are slow: GCC copies them through
// memory. Like loop_math.h, only for the files with loops.
#pragma once
#include <cstring>

#define LFT_CONVERTED(codes) __builtin_convertvector(codes, WideCodes)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>  // declares the builtins of instructions
// One instruction, of which GCC 12 makes seven in the conversion.
#define LFT_CONVERTED_64(codes) \
  (WideCodes) __builtin_ia32_pmovzxwd512_mask((ShortCodes)(codes), (IntCodes){}, 0xffff)
#else
#define LFT_CONVERTED_64(codes) LFT_CONVERTED(codes)
#endif

#include "models/ops/core/loop_math.h"

namespace lft::ops::loops {

constexpr int64_t kLanes = 16;

/// A vector of kBytes of floats and how it is read from unaligned numbers. (GCC converts no vectors
/// whose size is a template's parameter, and copies what memcpy() reads through memory.)
template <int kBytes>
struct VectorOf;
#define LFT_VECTOR_OF(bytes, converted)                                                           \
  template <>                                                                                     \
  struct VectorOf<bytes> {                                                                        \
    using Floats = float __attribute__((vector_size(bytes)));                                     \
    using WideCodes = uint32_t __attribute__((vector_size(bytes)));                               \
    using IntCodes = int __attribute__((vector_size(bytes)));                                     \
    using ShortCodes = short __attribute__((vector_size((bytes) / 2)));                           \
    using LooseFloats = float __attribute__((vector_size(bytes), aligned(4), may_alias));         \
    using LooseCodes = uint16_t __attribute__((vector_size((bytes) / 2), aligned(2), may_alias)); \
    __attribute__((always_inline)) static inline void load(const float* from, Floats& to) {       \
      to = *reinterpret_cast<const LooseFloats*>(from);                                           \
    }                                                                                             \
    __attribute__((always_inline)) static inline void load(const Bf16* from, Floats& to) {        \
      const LooseCodes codes = *reinterpret_cast<const LooseCodes*>(from);                        \
      to = reinterpret_cast<Floats>(converted(codes) << 16);                                      \
    }                                                                                             \
  };
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector is returned by a function that exists
LFT_VECTOR_OF(16, LFT_CONVERTED)
LFT_VECTOR_OF(32, LFT_CONVERTED)
LFT_VECTOR_OF(64, LFT_CONVERTED_64)
#pragma GCC diagnostic pop
#undef LFT_CONVERTED
#undef LFT_CONVERTED_64
#undef LFT_VECTOR_OF

template <int kBytes>
struct Lanes {
  static constexpr int kEach = kBytes / 4, kParts = kLanes / kEach;
  typename VectorOf<kBytes>::Floats parts[kParts];
};

template <int kBytes, class T>
LFT_INLINE void read(const T* from, Lanes<kBytes>& to) {
  for (int i = 0; i < Lanes<kBytes>::kParts; ++i)
    VectorOf<kBytes>::load(from + i * Lanes<kBytes>::kEach, to.parts[i]);
}
template <int kBytes>
LFT_INLINE void read(const Half* from, Lanes<kBytes>& to) {
  float wide[kLanes];
#pragma omp simd
  for (int64_t k = 0; k < kLanes; ++k) wide[k] = load(from + k);
  read(wide, to);
}

template <int kBytes>
LFT_INLINE void write(const Lanes<kBytes>& from, float* to) {
  std::memcpy(to, from.parts, sizeof(from.parts));
}

/// sum += a b.
template <int kBytes>
LFT_INLINE void add_product(Lanes<kBytes>& sum, const Lanes<kBytes>& a, const Lanes<kBytes>& b) {
  for (int i = 0; i < Lanes<kBytes>::kParts; ++i) sum.parts[i] += a.parts[i] * b.parts[i];
}
/// sum += a b for a number b.
template <int kBytes>
LFT_INLINE void add_product(Lanes<kBytes>& sum, const Lanes<kBytes>& a, float b) {
  for (int i = 0; i < Lanes<kBytes>::kParts; ++i) sum.parts[i] += a.parts[i] * b;
}

using Quarter = float __attribute__((vector_size(16)));

/// Halves are added until four lanes are left.
template <int kBytes>
LFT_INLINE void fold(const Lanes<kBytes>& lanes, Quarter& to) {
  Quarter parts[4];
  std::memcpy(parts, lanes.parts, sizeof(parts));
  to = (parts[0] + parts[2]) + (parts[1] + parts[3]);
}
LFT_INLINE float sum_of_four(const Quarter& v) { return (v[0] + v[2]) + (v[1] + v[3]); }

template <int kBytes>
LFT_INLINE float sum_of(const Lanes<kBytes>& lanes) {
  Quarter v;
  fold(lanes, v);
  return sum_of_four(v);
}
/// The sums of four vectors, with the bits of sum_of().
template <int kBytes>
LFT_INLINE void sums_of(const Lanes<kBytes> (&lanes)[4], float (&to)[4]) {
  Quarter v[4];
  for (int i = 0; i < 4; ++i) fold(lanes[i], v[i]);
  const Quarter first = __builtin_shufflevector(v[0], v[1], 0, 1, 4, 5) +
                        __builtin_shufflevector(v[0], v[1], 2, 3, 6, 7);
  const Quarter second = __builtin_shufflevector(v[2], v[3], 0, 1, 4, 5) +
                         __builtin_shufflevector(v[2], v[3], 2, 3, 6, 7);
  const Quarter all = __builtin_shufflevector(first, second, 0, 2, 4, 6) +
                      __builtin_shufflevector(first, second, 1, 3, 5, 7);
  std::memcpy(to, &all, sizeof(to));
}

}  // namespace lft::ops::loops
