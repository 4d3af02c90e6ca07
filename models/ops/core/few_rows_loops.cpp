// Compiled like cpu_loops.cpp: must not include torch headers that contain code.
#include "models/ops/core/few_rows_loops.h"

#include "models/ops/core/loop_lanes.h"

namespace lft::ops::loops {
namespace {

/// Rows and columns with sums in registers.
template <int kBytes, int kRows, int kColumns, class T>
LFT_INLINE void block(const FewRows<T>& of, int64_t row, int64_t column) {
  const float* const x = of.x + row * of.x_stride;
  const T* const w = of.w + column * of.w_stride;
  Lanes<kBytes> sums[kRows][kColumns] = {};
  int64_t i = 0;
  for (; i + kLanes <= of.width; i += kLanes) {
    Lanes<kBytes> weights[kColumns], inputs;
    for (int c = 0; c < kColumns; ++c) {
      read(w + c * of.w_stride + i, weights[c]);
      __builtin_prefetch(w + (c + kColumns) * of.w_stride + i);  // the next data; no access
    }
    for (int r = 0; r < kRows; ++r) {
      read(x + r * of.x_stride + i, inputs);
      for (int c = 0; c < kColumns; ++c) add_product(sums[r][c], inputs, weights[c]);
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

/// A few rows of weights, read from memory once for all rows of x. The sums of a block fit into the
/// vector registers: 32 of 64 bytes, otherwise 16.
template <int kBytes, int kColumns, class T>
LFT_INLINE void columns(const FewRows<T>& of, int64_t column) {
  constexpr int kWide = kBytes == 64 ? kColumns : 1;
  int64_t row = 0;
  for (; row + 4 <= of.rows; row += 4) {
    for (int c = 0; c < kColumns; c += kWide) block<kBytes, 4, kWide>(of, row, column + c);
  }
  for (; row + 2 <= of.rows; row += 2) block<kBytes, 2, kColumns>(of, row, column);
  for (; row < of.rows; ++row) block<kBytes, 1, kColumns>(of, row, column);
}

template <int kBytes, class T>
LFT_INLINE void all_columns(const FewRows<T>& of, int64_t first, int64_t last) {
  constexpr int kBlock = kBytes == 64 ? 4 : 2;
  int64_t column = first;
  for (; column + kBlock <= last; column += kBlock) columns<kBytes, kBlock>(of, column);
  for (; column < last; ++column) columns<kBytes, 1>(of, column);
}

}  // namespace

LFT_VERSIONS(void few_rows(const FewRows<float>& of, int64_t first, int64_t last),
             all_columns<kVectorBytes>(of, first, last))
LFT_VERSIONS(void few_rows(const FewRows<Bf16>& of, int64_t first, int64_t last),
             all_columns<kVectorBytes>(of, first, last))
LFT_VERSIONS(void few_rows(const FewRows<Half>& of, int64_t first, int64_t last),
             all_columns<kVectorBytes>(of, first, last))

}  // namespace lft::ops::loops
