// Compiled like cpu_loops.cpp: must not include torch headers that contain code.
#include "models/ops/core/few_rows_loops.h"

#include <cstring>

#include "models/ops/core/loop_math.h"

namespace lft::ops::loops {
namespace {

constexpr int64_t kLanes = 16;
using Lanes = float __attribute__((vector_size(64)));
using HalfOfLanes = float __attribute__((vector_size(32)));
using QuarterOfLanes = float __attribute__((vector_size(16)));
using Codes = uint16_t __attribute__((vector_size(32)));
using WideCodes = uint32_t __attribute__((vector_size(64)));

LFT_INLINE void read(const float* from, Lanes& to) { std::memcpy(&to, from, sizeof(to)); }
LFT_INLINE void read(const Bf16* from, Lanes& to) {
  Codes bits;
  std::memcpy(&bits, from, sizeof(bits));
  const WideCodes wide = __builtin_convertvector(bits, WideCodes) << 16;
  std::memcpy(&to, &wide, sizeof(to));
}
LFT_INLINE void read(const Half* from, Lanes& to) {
  float wide[kLanes];
#pragma omp simd
  for (int64_t k = 0; k < kLanes; ++k) wide[k] = load(from + k);
  std::memcpy(&to, wide, sizeof(to));
}

LFT_INLINE float sum_of(const Lanes& v) {
  const HalfOfLanes half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                           __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const QuarterOfLanes quarter = __builtin_shufflevector(half, half, 0, 1, 2, 3) +
                                 __builtin_shufflevector(half, half, 4, 5, 6, 7);
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

/// Rows and columns with sums in registers.
template <int kRows, int kColumns, class T>
LFT_INLINE void block(const FewRows<T>& of, int64_t row, int64_t column) {
  const float* const x = of.x + row * of.x_stride;
  const T* const w = of.w + column * of.w_stride;
  Lanes sums[kRows][kColumns] = {};
  int64_t i = 0;
  for (; i + kLanes <= of.width; i += kLanes) {
    Lanes weights[kColumns], inputs;
    for (int c = 0; c < kColumns; ++c) {
      read(w + c * of.w_stride + i, weights[c]);
      __builtin_prefetch(w + (c + kColumns) * of.w_stride + i);  // the next data; no access
    }
    for (int r = 0; r < kRows; ++r) {
      read(x + r * of.x_stride + i, inputs);
      for (int c = 0; c < kColumns; ++c) sums[r][c] += inputs * weights[c];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      float sum = sum_of(sums[r][c]);
      for (int64_t k = i; k < of.width; ++k)
        sum += x[r * of.x_stride + k] * load(w + c * of.w_stride + k);
      const T* const base =
          of.base == nullptr ? nullptr : of.base + (row + r) * of.base_stride + column + c;
      store(of.y + (row + r) * of.y_stride + column + c,
            base == nullptr ? of.scale * sum : load(base) + of.scale * sum);
    }
  }
}

/// A few rows of weights, read from memory once for all rows of x.
template <int kColumns, class T>
LFT_INLINE void columns(const FewRows<T>& of, int64_t column) {
  constexpr int kBlock = 4;
  int64_t row = 0;
  for (; row + kBlock <= of.rows; row += kBlock) block<kBlock, kColumns>(of, row, column);
  for (; row < of.rows; ++row) block<1, kColumns>(of, row, column);
}

template <class T>
LFT_INLINE void all_columns(const FewRows<T>& of, int64_t first, int64_t last) {
  constexpr int kBlock = 4;
  int64_t column = first;
  for (; column + kBlock <= last; column += kBlock) columns<kBlock>(of, column);
  for (; column < last; ++column) columns<1>(of, column);
}

}  // namespace

LFT_CLONES void few_rows(const FewRows<float>& of, int64_t first, int64_t last) {
  all_columns(of, first, last);
}
LFT_CLONES void few_rows(const FewRows<Bf16>& of, int64_t first, int64_t last) {
  all_columns(of, first, last);
}
LFT_CLONES void few_rows(const FewRows<Half>& of, int64_t first, int64_t last) {
  all_columns(of, first, last);
}

}  // namespace lft::ops::loops
