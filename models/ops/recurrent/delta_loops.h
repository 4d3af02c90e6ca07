// Loops of the gated delta rule on a CPU: products of matrices that stay in a core's caches, and
// what is computed for the rows of a chunk. Compiled for several processors like cpu_loops.h, and
// single-threaded. W is float or double, X the type of q, k and v: float, BFloat16 or Half with
// float, double with double. An element of a result is summed in an order that depends on the sizes
// of the sum only.
#pragma once
#include <cstdint>

#include "models/ops/core/cpu_loops.h"

namespace lft::ops::loops {

/// Tokens of a chunk.
constexpr int64_t kDeltaChunk = 64;
/// The loops read and write this many columns at a time: widths are padded with zeros.
constexpr int64_t kColumnGroup = 16;

/// Rows at a distance of `stride`. `cols` is a multiple of kColumnGroup, or for what is read from
/// or written to tensors the true width.
template <class W>
struct Matrix {
  W* data;
  int64_t rows, cols, stride;
};

/// c [m, n] = keep c + a b; nothing is read from c if keep is 0. a[i, j] is at i a_row + j a_col.
template <class W>
struct Product {
  int64_t m, n, k;  // n: a multiple of kColumnGroup
  const W* a;
  int64_t a_row, a_col;
  const W* b;
  int64_t b_row;
  W* c;
  int64_t c_row;
  W keep;
};
void multiply(const Product<float>& of);
void multiply(const Product<double>& of);

/// x becomes the solution y of y = x + n y, n [rows, rows] strictly lower triangular, in rows of
/// kDeltaChunk. The second: of y = x + n^T y.
void solve_below(const float* n, const Matrix<float>& x);
void solve_below(const double* n, const Matrix<double>& x);
void solve_above(const float* n, const Matrix<float>& x);
void solve_above(const double* n, const Matrix<double>& x);

/// to = the transpose of from [rows, cols].
void transpose(const Matrix<float>& from, float* to, int64_t to_stride);
void transpose(const Matrix<double>& from, double* to, int64_t to_stride);

/// The scores of a chunk's tokens, and what the gradients of its matrices become. Matrices are in
/// rows of kDeltaChunk, with zeros above the diagonal.
template <class W>
struct ChunkScores {
  int64_t count;
  const W *sums, *beta;  // sums: of g, from the chunk's start to each token
  const W *kk, *qk;      // k k^T, q k^T; anything above the diagonal
  W *decay, *n, *p;      // decay[i, j] = exp(sums[i] - sums[j]), n = -beta[i] decay kk below the
                         // diagonal, p = decay qk
};
void chunk_scores(const ChunkScores<float>& of);
void chunk_scores(const ChunkScores<double>& of);

template <class W>
struct ChunkScoreGradients {
  ChunkScores<W> of;
  const W *dn, *dp;
  W *dkk, *dqk;      // added to
  W *dsums, *dbeta;  // added to
};
void chunk_scores_backward(const ChunkScoreGradients<float>& of);
void chunk_scores_backward(const ChunkScoreGradients<double>& of);

/// y[i] = scale[i] x[i], of rows of the same width; y may be x.
void scale_rows(const float* scale, const Matrix<float>& x, const Matrix<float>& y);
void scale_rows(const double* scale, const Matrix<double>& x, const Matrix<double>& y);
/// y[i] += scale[i] x[i]; no scale: 1.
void add_scaled_rows(const float* scale, const Matrix<float>& x, const Matrix<float>& y);
void add_scaled_rows(const double* scale, const Matrix<double>& x, const Matrix<double>& y);
/// y[i] = v[i] - scale[i] y[i].
void subtract_scaled_rows(const float* scale, const Matrix<float>& v, const Matrix<float>& y);
void subtract_scaled_rows(const double* scale, const Matrix<double>& v, const Matrix<double>& y);
/// The sum of x[i] y[i].
float row_dot(const float* x, const float* y, int64_t cols);
double row_dot(const double* x, const double* y, int64_t cols);

/// Rows of a tensor, `stride` elements apart.
template <class X>
struct TensorRows {
  X* data;
  int64_t stride, width;
};

#define LFT_DELTA_ROWS(X, W)                                                                      \
  /* Rows as they are, zeros up to to.cols. */                                                    \
  void read_rows(const TensorRows<const X>& from, const Matrix<W>& to);                           \
  void write_rows(const Matrix<W>& from, const TensorRows<X>& to);                                \
  /* Rows times scale / sqrt(the sum of their squares + 1e-6), which is `inverse` without scale.  \
   */                                                                                             \
  void read_unit_rows(const TensorRows<const X>& from, W scale, const Matrix<W>& to, W* inverse); \
  /* From the result y of read_unit_rows() and its gradient dy. */                                \
  void write_unit_row_gradients(const Matrix<W>& y, const Matrix<W>& dy, W scale,                 \
                                const W* inverse, const TensorRows<X>& to);
LFT_DELTA_ROWS(float, float)
LFT_DELTA_ROWS(Bf16, float)
LFT_DELTA_ROWS(Half, float)
LFT_DELTA_ROWS(double, double)
#undef LFT_DELTA_ROWS

}  // namespace lft::ops::loops
