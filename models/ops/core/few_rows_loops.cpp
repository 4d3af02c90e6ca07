// Compiled like cpu_loops.cpp: must not include torch headers that contain code.
#include "models/ops/core/few_rows_loops.h"

#include "models/ops/core/loop_lanes.h"

namespace lft::ops::loops {
namespace {

constexpr int64_t kTileRows = 8, kTileColumns = 8;
constexpr int64_t kKeptInputs = 4096;  // elements of x that stay in the L1 cache

/// The sums of a tile.
template <int kBytes>
struct Sums {
  Lanes<kBytes> of[kTileRows][kTileColumns];
};

/// Adds the elements from `begin` to `end`, a multiple of kLanes, to the sums of kRows and kColumns
/// from (r0, c0) on, in registers. x and w: the tile's first row and column.
template <int kBytes, int kRows, int kColumns, class T>
LFT_INLINE void accumulate(const FewRows<T>& of, const float* x, const T* w, int r0, int c0,
                           int64_t begin, int64_t end, Sums<kBytes>& sums) {
  x += r0 * of.x_stride;
  w += c0 * of.w_stride;
  Lanes<kBytes> local[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) local[r][c] = sums.of[r0 + r][c0 + c];
  }
  for (int64_t i = begin; i < end; i += kLanes) {
    Lanes<kBytes> weights[kColumns], inputs;
    for (int c = 0; c < kColumns; ++c) {
      read(w + c * of.w_stride + i, weights[c]);
      __builtin_prefetch(w + (c + kColumns) * of.w_stride + i);  // the next data; no access
    }
    for (int r = 0; r < kRows; ++r) {
      read(x + r * of.x_stride + i, inputs);
      for (int c = 0; c < kColumns; ++c) add_product(local[r][c], inputs, weights[c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) sums.of[r0 + r][c0 + c] = local[r][c];
  }
}

/// kColumns columns for all rows of a tile. The sums fit into the vector registers: 32 of 64 bytes,
/// otherwise 16.
template <int kBytes, int kColumns, class T>
LFT_INLINE void accumulate_rows(const FewRows<T>& of, const float* x, const T* w, int rows, int c0,
                                int64_t begin, int64_t end, Sums<kBytes>& sums) {
  constexpr int kWide = kBytes == 64 ? kColumns : 1;
  int row = 0;
  for (; row + 4 <= rows; row += 4) {
    for (int c = 0; c < kColumns; c += kWide)
      accumulate<kBytes, 4, kWide>(of, x, w, row, c0 + c, begin, end, sums);
  }
  for (; row + 2 <= rows; row += 2)
    accumulate<kBytes, 2, kColumns>(of, x, w, row, c0, begin, end, sums);
  for (; row < rows; ++row) accumulate<kBytes, 1, kColumns>(of, x, w, row, c0, begin, end, sums);
}

/// Adds what is left of the width to a sum, and writes it.
template <int kBytes, class T>
LFT_INLINE void finish(const FewRows<T>& of, int64_t row, int64_t column, int64_t from,
                       const Lanes<kBytes>& lanes) {
  float sum = sum_of(lanes);
  for (int64_t i = from; i < of.width; ++i)
    sum += of.x[row * of.x_stride + i] * load(of.w + column * of.w_stride + i);
  const T* const base = of.base == nullptr ? nullptr : of.base + row * of.base_stride + column;
  store(of.y + row * of.y_stride + column,
        base == nullptr ? of.scale * sum : load(base) + of.scale * sum);
}

/// Weights are read from memory once for the rows of x in a tile.
template <int kBytes, class T>
LFT_INLINE void tile(const FewRows<T>& of, int64_t row, int rows, int64_t column, int columns) {
  constexpr int kBlock = kBytes == 64 ? 4 : 2;
  const float* const x = of.x + row * of.x_stride;
  const T* const w = of.w + column * of.w_stride;
  const int64_t whole = of.width / kLanes * kLanes;
  const int64_t depth = kKeptInputs / rows / kLanes * kLanes;
  Sums<kBytes> sums = {};
  for (int64_t begin = 0; begin < whole; begin += depth) {
    const int64_t end = begin + depth < whole ? begin + depth : whole;
    int c = 0;
    for (; c + kBlock <= columns; c += kBlock)
      accumulate_rows<kBytes, kBlock>(of, x, w, rows, c, begin, end, sums);
    for (; c < columns; ++c) accumulate_rows<kBytes, 1>(of, x, w, rows, c, begin, end, sums);
  }
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) finish(of, row + r, column + c, whole, sums.of[r][c]);
  }
}

template <int kBytes, class T>
LFT_INLINE void all_columns(const FewRows<T>& of, int64_t first, int64_t last) {
  const auto at_most = [](int64_t left, int64_t most) {
    return static_cast<int>(left < most ? left : most);
  };
  for (int64_t column = first; column < last; column += kTileColumns) {
    for (int64_t row = 0; row < of.rows; row += kTileRows)
      tile<kBytes>(of, row, at_most(of.rows - row, kTileRows), column,
                   at_most(last - column, kTileColumns));
  }
}

}  // namespace

LFT_VERSIONS(few_rows, (const FewRows<float>& of, int64_t first, int64_t last), (of, first, last),
             all_columns<kVectorBytes>(of, first, last))
LFT_VERSIONS(few_rows, (const FewRows<Bf16>& of, int64_t first, int64_t last), (of, first, last),
             all_columns<kVectorBytes>(of, first, last))
LFT_VERSIONS(few_rows, (const FewRows<Half>& of, int64_t first, int64_t last), (of, first, last),
             all_columns<kVectorBytes>(of, first, last))

}  // namespace lft::ops::loops
