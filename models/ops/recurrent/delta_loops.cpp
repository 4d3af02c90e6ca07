// Compiled like cpu_loops.cpp: must not include torch headers that contain code.
#include "models/ops/recurrent/delta_loops.h"

#include <cmath>

#include "models/ops/core/loop_math.h"

namespace lft::ops::loops {
namespace {

/// A vector of kBytes, and the same at any address. (GCC handles vectors whose size is a template's
/// parameter badly.)
template <class W, int kBytes>
struct VectorType;
#define LFT_VECTOR_TYPE(W, bytes)                                               \
  template <>                                                                   \
  struct VectorType<W, bytes> {                                                 \
    static constexpr int64_t kEach = bytes / int64_t{sizeof(W)};                \
    using Type = W __attribute__((vector_size(bytes)));                         \
    using Loose = W __attribute__((vector_size(bytes), aligned(4), may_alias)); \
  };
LFT_VECTOR_TYPE(float, 16)
LFT_VECTOR_TYPE(float, 32)
LFT_VECTOR_TYPE(float, 64)
LFT_VECTOR_TYPE(double, 16)
LFT_VECTOR_TYPE(double, 32)
LFT_VECTOR_TYPE(double, 64)
#undef LFT_VECTOR_TYPE

/// kRows rows and kVectors vectors of c, in registers.
template <int kBytes, int kRows, int kVectors, class W>
LFT_INLINE void product_tile(const Product<W>& of, int64_t row, int64_t col) {
  using V = VectorType<W, kBytes>;
  typename V::Type sums[kRows][kVectors];
  W* const c = of.c + row * of.c_row + col;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      if (of.keep == W(0)) {
        sums[r][v] = typename V::Type{};
      } else {
        sums[r][v] =
            *reinterpret_cast<const typename V::Loose*>(c + r * of.c_row + v * V::kEach) * of.keep;
      }
    }
  }
  const W *a = of.a + row * of.a_row, *b = of.b + col;
  const int64_t a_row = of.a_row, a_col = of.a_col, b_row = of.b_row;
  for (int64_t k = 0; k < of.k; ++k, a += a_col, b += b_row) {
    typename V::Type right[kVectors];
    for (int v = 0; v < kVectors; ++v)
      right[v] = *reinterpret_cast<const typename V::Loose*>(b + v * V::kEach);
    for (int r = 0; r < kRows; ++r) {
      const W left = a[r * a_row];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += right[v] * left;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      *reinterpret_cast<typename V::Loose*>(c + r * of.c_row + v * V::kEach) = sums[r][v];
  }
}

/// Some columns of all rows. 6 rows of two vectors and their operands fill 16 registers.
template <int kBytes, int kVectors, class W>
LFT_INLINE void product_columns(const Product<W>& of, int64_t col) {
  int64_t row = 0;
  for (; row + 6 <= of.m; row += 6) product_tile<kBytes, 6, kVectors>(of, row, col);
  for (; row + 4 <= of.m; row += 4) product_tile<kBytes, 4, kVectors>(of, row, col);
  for (; row + 2 <= of.m; row += 2) product_tile<kBytes, 2, kVectors>(of, row, col);
  for (; row < of.m; ++row) product_tile<kBytes, 1, kVectors>(of, row, col);
}

template <int kBytes, class W>
LFT_INLINE void product(const Product<W>& of) {
  constexpr int64_t kEach = VectorType<W, kBytes>::kEach;
  int64_t col = 0;
  for (; col + 2 * kEach <= of.n; col += 2 * kEach) product_columns<kBytes, 2>(of, col);
  for (; col < of.n; col += kEach) product_columns<kBytes, 1>(of, col);
}

constexpr int64_t kSolved = 8;  // rows that are solved together, in registers

/// Rows first .. first + count - 1 of x, which depend on each other only. kUp: from the last to the
/// first, by columns of n.
template <int kBytes, bool kUp, class W>
LFT_INLINE void solve_rows(const W* n, const Matrix<W>& x, int64_t first, int64_t count) {
  using V = VectorType<W, kBytes>;
  n += first * kDeltaChunk + first;
  for (int64_t col = 0; col < x.cols; col += V::kEach) {
    typename V::Type y[kSolved];
    W* const at = x.data + first * x.stride + col;
    for (int64_t r = 0; r < count; ++r)
      y[r] = *reinterpret_cast<const typename V::Loose*>(at + r * x.stride);
    if (kUp) {
      for (int64_t r = count - 2; r >= 0; --r) {
        for (int64_t s = r + 1; s < count; ++s) y[r] += y[s] * n[s * kDeltaChunk + r];
      }
    } else {
      for (int64_t r = 1; r < count; ++r) {
        for (int64_t s = 0; s < r; ++s) y[r] += y[s] * n[r * kDeltaChunk + s];
      }
    }
    for (int64_t r = 0; r < count; ++r)
      *reinterpret_cast<typename V::Loose*>(at + r * x.stride) = y[r];
  }
}

template <int kBytes, bool kUp, class W>
LFT_INLINE void solve(const W* n, const Matrix<W>& x) {
  const int64_t blocks = (x.rows + kSolved - 1) / kSolved;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = (kUp ? blocks - 1 - b : b) * kSolved,
                  count = x.rows - first < kSolved ? x.rows - first : kSolved;
    const int64_t from = kUp ? first + count : 0, known = kUp ? x.rows - from : first;
    if (known > 0) {
      product<kBytes>(
          Product<W>{.m = count,
                     .n = x.cols,
                     .k = known,
                     .a = kUp ? n + from * kDeltaChunk + first : n + first * kDeltaChunk,
                     .a_row = kUp ? 1 : kDeltaChunk,
                     .a_col = kUp ? kDeltaChunk : 1,
                     .b = x.data + from * x.stride,
                     .b_row = x.stride,
                     .c = x.data + first * x.stride,
                     .c_row = x.stride,
                     .keep = 1});
    }
    if (count == kSolved) {
      solve_rows<kBytes, kUp>(n, x, first, kSolved);
    } else {
      solve_rows<kBytes, kUp>(n, x, first, count);
    }
  }
}

constexpr int64_t kBlock = 16;  // rows and columns of a transposed block

template <class W>
LFT_INLINE void transpose_all(const Matrix<W>& from, W* to, int64_t to_stride) {
  for (int64_t row = 0; row < from.rows; row += kBlock) {
    const int64_t rows = from.rows - row < kBlock ? from.rows - row : kBlock;
    for (int64_t col = 0; col < from.cols; col += kBlock) {
      const W* const source = from.data + row * from.stride + col;
      W* const target = to + col * to_stride + row;
      for (int64_t c = 0; c < kBlock; ++c) {
        for (int64_t r = 0; r < rows; ++r) target[c * to_stride + r] = source[r * from.stride + c];
      }
    }
  }
}

/// exp of a number that is at most 0; 0 where float32 has no normal number for it.
LFT_INLINE float decay_of(float x) {
  const float value = fast_exp(x);
  return x < -87.0f ? 0.0f : value;
}
LFT_INLINE double decay_of(double x) { return std::exp(x); }

template <class W>
LFT_INLINE void all_scores(const ChunkScores<W>& of) {
  for (int64_t i = 0; i < of.count; ++i) {
    const W sum = of.sums[i], beta = of.beta[i];
    const int64_t row = i * kDeltaChunk;
    const W *kk = of.kk + row, *qk = of.qk + row;
    W *decay = of.decay + row, *n = of.n + row, *p = of.p + row;
#pragma omp simd
    for (int64_t j = 0; j < kDeltaChunk; ++j) {
      // Unconditional, so that the loop vectorises; above the diagonal anything finite.
      const W earlier = j < i ? of.sums[j] : sum, by = decay_of(sum - earlier);
      decay[j] = j <= i ? by : W(0);
      n[j] = j < i ? -beta * by * kk[j] : W(0);
      p[j] = j <= i ? by * qk[j] : W(0);
    }
  }
}

template <class W>
LFT_INLINE void all_score_gradients(const ChunkScoreGradients<W>& of) {
  const ChunkScores<W>& s = of.of;
  W columns[kDeltaChunk] = {};
  for (int64_t i = 0; i < s.count; ++i) {
    const int64_t row = i * kDeltaChunk;
    const W *kk = s.kk + row, *decay = s.decay + row, *n = s.n + row, *p = s.p + row,
            *dn = of.dn + row, *dp = of.dp + row;
    W *dkk = of.dkk + row, *dqk = of.dqk + row;
    const W beta = s.beta[i];
    W sum = 0, strength = 0;
#pragma omp simd reduction(+ : sum, strength)
    for (int64_t j = 0; j < kDeltaChunk; ++j) {
      const W below = j < i ? dn[j] : W(0), on = j <= i ? dp[j] : W(0);
      const W scaled = below * decay[j], both = below * n[j] + on * p[j];
      dkk[j] -= beta * scaled;
      dqk[j] += on * decay[j];
      strength += j < i ? scaled * kk[j] : W(0);  // kk is undefined above the diagonal
      sum += both;
      columns[j] += both;
    }
    of.dbeta[i] -= strength;
    of.dsums[i] += sum;
  }
  for (int64_t j = 0; j < s.count; ++j) of.dsums[j] -= columns[j];
}

template <class W>
LFT_INLINE void scaled(const W* scale, const Matrix<W>& x, const Matrix<W>& y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const W* from = x.data + r * x.stride;
    W* to = y.data + r * y.stride;
    const W by = scale[r];
#pragma omp simd
    for (int64_t c = 0; c < x.cols; ++c) to[c] = by * from[c];
  }
}

template <class W>
LFT_INLINE void add_scaled(const W* scale, const Matrix<W>& x, const Matrix<W>& y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const W* from = x.data + r * x.stride;
    W* to = y.data + r * y.stride;
    const W by = scale == nullptr ? W(1) : scale[r];
#pragma omp simd
    for (int64_t c = 0; c < x.cols; ++c) to[c] += by * from[c];
  }
}

template <class W>
LFT_INLINE void subtract_scaled(const W* scale, const Matrix<W>& v, const Matrix<W>& y) {
  for (int64_t r = 0; r < v.rows; ++r) {
    const W* from = v.data + r * v.stride;
    W* to = y.data + r * y.stride;
    const W by = scale[r];
#pragma omp simd
    for (int64_t c = 0; c < v.cols; ++c) to[c] = from[c] - by * to[c];
  }
}

template <class W>
LFT_INLINE W dot(const W* x, const W* y, int64_t cols) {
  W sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < cols; ++c) sum += x[c] * y[c];
  return sum;
}

template <class W>
LFT_INLINE void clear_from(W* row, int64_t from, int64_t to) {
  for (int64_t c = from; c < to; ++c) row[c] = 0;
}

template <class X, class W>
LFT_INLINE void read_all(const TensorRows<const X>& from, const Matrix<W>& to) {
  for (int64_t r = 0; r < to.rows; ++r) {
    const X* x = from.data + r * from.stride;
    W* y = to.data + r * to.stride;
#pragma omp simd
    for (int64_t c = 0; c < from.width; ++c) y[c] = load(x + c);
    clear_from(y, from.width, to.cols);
  }
}

template <class X, class W>
LFT_INLINE void write_all(const Matrix<W>& from, const TensorRows<X>& to) {
  for (int64_t r = 0; r < from.rows; ++r) {
    const W* x = from.data + r * from.stride;
    X* y = to.data + r * to.stride;
#pragma omp simd
    for (int64_t c = 0; c < to.width; ++c) store(y + c, x[c]);
  }
}

constexpr double kLengthEps = 1e-6;

template <class X, class W>
LFT_INLINE void read_units(const TensorRows<const X>& from, W scale, const Matrix<W>& to,
                           W* inverse) {
  for (int64_t r = 0; r < to.rows; ++r) {
    const X* x = from.data + r * from.stride;
    W* y = to.data + r * to.stride;
    W squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < from.width; ++c) squares += load(x + c) * load(x + c);
    inverse[r] = 1 / std::sqrt(squares + static_cast<W>(kLengthEps));
    const W by = inverse[r] * scale;
#pragma omp simd
    for (int64_t c = 0; c < from.width; ++c) y[c] = load(x + c) * by;
    clear_from(y, from.width, to.cols);
  }
}

template <class X, class W>
LFT_INLINE void write_unit_gradients(const Matrix<W>& y, const Matrix<W>& dy, W scale,
                                     const W* inverse, const TensorRows<X>& to) {
  for (int64_t r = 0; r < y.rows; ++r) {
    const W *unit = y.data + r * y.stride, *d = dy.data + r * dy.stride;
    X* x = to.data + r * to.stride;
    const W by = inverse[r] * scale, along = dot(unit, d, to.width) / (scale * scale);
#pragma omp simd
    for (int64_t c = 0; c < to.width; ++c) store(x + c, by * (d[c] - unit[c] * along));
  }
}

}  // namespace

#define LFT_DELTA_MATRICES(W)                                                                    \
  LFT_VERSIONS(multiply, (const Product<W>& of), (of), product<kVectorBytes>(of))                \
  LFT_VERSIONS(solve_below, (const W* n, const Matrix<W>& x), (n, x),                            \
               (solve<kVectorBytes, false>(n, x)))                                               \
  LFT_VERSIONS(solve_above, (const W* n, const Matrix<W>& x), (n, x),                            \
               (solve<kVectorBytes, true>(n, x)))                                                \
  LFT_CLONES void transpose(const Matrix<W>& from, W* to, int64_t to_stride) {                   \
    transpose_all(from, to, to_stride);                                                          \
  }                                                                                              \
  LFT_CLONES void chunk_scores(const ChunkScores<W>& of) { all_scores(of); }                     \
  LFT_CLONES void chunk_scores_backward(const ChunkScoreGradients<W>& of) {                      \
    all_score_gradients(of);                                                                     \
  }                                                                                              \
  LFT_CLONES void scale_rows(const W* scale, const Matrix<W>& x, const Matrix<W>& y) {           \
    scaled(scale, x, y);                                                                         \
  }                                                                                              \
  LFT_CLONES void add_scaled_rows(const W* scale, const Matrix<W>& x, const Matrix<W>& y) {      \
    add_scaled(scale, x, y);                                                                     \
  }                                                                                              \
  LFT_CLONES void subtract_scaled_rows(const W* scale, const Matrix<W>& v, const Matrix<W>& y) { \
    subtract_scaled(scale, v, y);                                                                \
  }                                                                                              \
  LFT_CLONES W row_dot(const W* x, const W* y, int64_t cols) { return dot(x, y, cols); }
LFT_DELTA_MATRICES(float)
LFT_DELTA_MATRICES(double)

#define LFT_DELTA_ROWS(X, W)                                                                    \
  LFT_CLONES void read_rows(const TensorRows<const X>& from, const Matrix<W>& to) {             \
    read_all(from, to);                                                                         \
  }                                                                                             \
  LFT_CLONES void write_rows(const Matrix<W>& from, const TensorRows<X>& to) {                  \
    write_all(from, to);                                                                        \
  }                                                                                             \
  LFT_CLONES void read_unit_rows(const TensorRows<const X>& from, W scale, const Matrix<W>& to, \
                                 W* inverse) {                                                  \
    read_units(from, scale, to, inverse);                                                       \
  }                                                                                             \
  LFT_CLONES void write_unit_row_gradients(const Matrix<W>& y, const Matrix<W>& dy, W scale,    \
                                           const W* inverse, const TensorRows<X>& to) {         \
    write_unit_gradients(y, dy, scale, inverse, to);                                            \
  }
LFT_DELTA_ROWS(float, float)
LFT_DELTA_ROWS(Bf16, float)
LFT_DELTA_ROWS(Half, float)
LFT_DELTA_ROWS(double, double)

}  // namespace lft::ops::loops
