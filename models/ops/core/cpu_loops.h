// Fused elementwise and row loops for the CPU on raw pointers: one pass over memory, float32 maths,
// compiled for AVX-512, AVX2 and baseline. They are single-threaded: callers split rows or elements
// (parallel.h). T is float, BFloat16 or Half.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

#include "models/ops/core/dropout_mask.h"

namespace lft::ops::loops {

using Bf16 = c10::BFloat16;
using Half = c10::Half;

/// Rows are contiguous, also those of the gradients.
template <class X, class Y>
struct RmsNormRows {
  const X *x, *delta;  // delta: may be null
  const float* w;
  X* sum;  // null without delta
  Y* y;
  float* rstd;
};
/// With s = x, or x + delta rounded to their type and stored in `sum` if delta is given: y[r,c] =
/// w[c] * s[r,c] * rstd[r], rstd[r] = 1 / sqrt(mean_c(s^2) + eps).
void rms_norm(const RmsNormRows<float, float>& of, int64_t rows, int64_t cols, float eps);
void rms_norm(const RmsNormRows<float, Bf16>& of, int64_t rows, int64_t cols, float eps);
void rms_norm(const RmsNormRows<Bf16, float>& of, int64_t rows, int64_t cols, float eps);
void rms_norm(const RmsNormRows<Bf16, Bf16>& of, int64_t rows, int64_t cols, float eps);
void rms_norm(const RmsNormRows<Half, Half>& of, int64_t rows, int64_t cols, float eps);

template <class X, class Y>
struct RmsNormGradients {
  const Y* dy;
  const X *dsum, *x;  // dsum: may be null
  const float *w, *rstd;
  X* dx;
};
/// dx = rstd * (w dy - x rstd^2 mean_c(w dy x)), rounded; dsum is added if given.
void rms_norm_backward(const RmsNormGradients<float, float>& of, int64_t rows, int64_t cols);
void rms_norm_backward(const RmsNormGradients<float, Bf16>& of, int64_t rows, int64_t cols);
void rms_norm_backward(const RmsNormGradients<Bf16, float>& of, int64_t rows, int64_t cols);
void rms_norm_backward(const RmsNormGradients<Bf16, Bf16>& of, int64_t rows, int64_t cols);
void rms_norm_backward(const RmsNormGradients<Half, Half>& of, int64_t rows, int64_t cols);

/// The cosines and sines of `half` angles; sign -1 rotates backwards.
struct Rotation {
  const float *cos, *sin;
  float sign;
};
/// Rotates the pairs (x[i], x[i + half]) of `heads` heads of 2 * half elements.
void rope(const float* x, float* y, const Rotation& by, int64_t heads, int64_t half);
void rope(const Bf16* x, Bf16* y, const Rotation& by, int64_t heads, int64_t half);
void rope(const Half* x, Half* y, const Rotation& by, int64_t heads, int64_t half);

/// y = silu(gate) * up, silu(z) = z / (1 + exp(-z)).
void swiglu(const float* gate, const float* up, float* y, int64_t n);
void swiglu(const Bf16* gate, const Bf16* up, Bf16* y, int64_t n);
void swiglu(const Half* gate, const Half* up, Half* y, int64_t n);
void swiglu_backward(const float* dy, const float* gate, const float* up, float* dgate, float* dup,
                     int64_t n);
void swiglu_backward(const Bf16* dy, const Bf16* gate, const Bf16* up, Bf16* dgate, Bf16* dup,
                     int64_t n);
void swiglu_backward(const Half* dy, const Half* gate, const Half* up, Half* dgate, Half* dup,
                     int64_t n);

/// The same with GELU in its tanh form: gelu(z) = z / (1 + exp(-2 sqrt(2 / pi) (z + 0.044715
/// z^3))).
void geglu(const float* gate, const float* up, float* y, int64_t n);
void geglu(const Bf16* gate, const Bf16* up, Bf16* y, int64_t n);
void geglu(const Half* gate, const Half* up, Half* y, int64_t n);
void geglu_backward(const float* dy, const float* gate, const float* up, float* dgate, float* dup,
                    int64_t n);
void geglu_backward(const Bf16* dy, const Bf16* gate, const Bf16* up, Bf16* dgate, Bf16* dup,
                    int64_t n);
void geglu_backward(const Half* dy, const Half* gate, const Half* up, Half* dgate, Half* dup,
                    int64_t n);

/// y = x / (1 + exp(-1.702 x)). x and y may be the same.
void quick_gelu(const float* x, float* y, int64_t n);
void quick_gelu(const Bf16* x, Bf16* y, int64_t n);
void quick_gelu(const Half* x, Half* y, int64_t n);
void quick_gelu_backward(const float* dy, const float* x, float* dx, int64_t n);
void quick_gelu_backward(const Bf16* dy, const Bf16* x, Bf16* dx, int64_t n);
void quick_gelu_backward(const Half* dy, const Half* x, Half* dx, int64_t n);

/// log softmax(logits)[target]; a non-finite logit makes it non-finite. With `gradient` the logits
/// become scale * (onehot(target) - softmax(logits)), the gradient of scale times the result.
float token_logprob(float* logits, int64_t vocab, int64_t target, bool gradient, float scale);
float token_logprob(Bf16* logits, int64_t vocab, int64_t target, bool gradient, float scale);
float token_logprob(Half* logits, int64_t vocab, int64_t target, bool gradient, float scale);

/// Whether n numbers are finite.
bool all_finite(const float* x, int64_t n);
/// The index of the largest of n > 0 numbers, the first if several are; none is NaN.
int64_t largest(const float* x, int64_t n);

/// y = x * mask * scale for elements first .. first + n - 1; with `add`, y += it. `first` is a
/// multiple of 8.
void dropout(const float* x, float* y, int64_t first, int64_t n, const DropoutMask& mask, bool add);
void dropout(const Bf16* x, Bf16* y, int64_t first, int64_t n, const DropoutMask& mask, bool add);
void dropout(const Half* x, Half* y, int64_t first, int64_t n, const DropoutMask& mask, bool add);

}  // namespace lft::ops::loops
