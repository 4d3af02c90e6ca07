// The product of a few rows on raw pointers, as in cpu_loops.h: single-threaded, compiled for
// AVX-512, AVX2 and baseline.
#pragma once
#include "models/ops/core/cpu_loops.h"

namespace lft::ops::loops {

/// y[r, o] = base[r, o] + scale * sum_i x[r, i] w[o, i], summed in float32 and rounded once.
/// Strides are in elements, from one row to the next.
template <class T>
struct FewRows {
  const float* x;
  const T* w;
  const T* base;  // null: 0
  T* y;           // may be `base`
  int64_t rows, width;
  int64_t x_stride, w_stride, base_stride, y_stride;
  float scale;
};
/// Computes the columns from `first` to `last` of y. The sums depend neither on the range of
/// columns nor on the number of rows.
void few_rows(const FewRows<float>& of, int64_t first, int64_t last);
void few_rows(const FewRows<Bf16>& of, int64_t first, int64_t last);
void few_rows(const FewRows<Half>& of, int64_t first, int64_t last);

}  // namespace lft::ops::loops
