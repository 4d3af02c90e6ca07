// Loops of the causal convolution and of the gated norm on a CPU, like cpu_loops.h. T is float,
// BFloat16 or Half.
#pragma once
#include <cstdint>

#include "models/ops/core/cpu_loops.h"

namespace lft::ops::loops {

/// The channels that the backward pass of the convolution computes at a time.
constexpr int64_t kConvChannels = 256;
constexpr int64_t kMostTaps = 8;

/// One token: out[c] = silu(sum_j weight[j, c] rows[j][c]), the sum rounded to T.
template <class T>
struct ConvRow {
  const T* rows[kMostTaps];  // the inputs of the taps, the token's own is the last
  const float* weight;       // [taps, channels]
  T* out;
  int64_t taps, channels;
};
void conv_silu(const ConvRow<float>& of);
void conv_silu(const ConvRow<Bf16>& of);
void conv_silu(const ConvRow<Half>& of);

/// Some channels of one sequence, at most kConvChannels: gradients of its inputs and of the weight.
template <class T>
struct ConvGradients {
  const T *x, *dy;      // the sequence's first token
  const T* before;      // [taps - 1, ..]: the inputs before it
  const float* weight;  // [taps, ..]
  T* dx;
  float* dweight;  // [taps, ..]; added to; null: frozen
  int64_t tokens, taps, channels;
  int64_t stride;  // of all rows
};
void conv_silu_backward(const ConvGradients<float>& of);
void conv_silu_backward(const ConvGradients<Bf16>& of);
void conv_silu_backward(const ConvGradients<Half>& of);

/// Rows of `cols` elements: y = w * (x * rstd) * silu(gate), rstd = 1 / sqrt(mean(x^2) + eps). x *
/// rstd is rounded to T, and with `narrow` also its product with w.
template <class T>
struct GatedNormRows {
  const T *x, *gate;
  const float* w;
  T* y;
  int64_t rows, cols;
  float eps;
  bool narrow;
};
void gated_norm(const GatedNormRows<float>& of);
void gated_norm(const GatedNormRows<Bf16>& of);
void gated_norm(const GatedNormRows<Half>& of);

/// Its gradients, without the roundings.
template <class T>
struct GatedNormGradients {
  const T *dy, *x, *gate;
  const float* w;
  T *dx, *dgate;
  int64_t rows, cols;
  float eps;
};
void gated_norm_backward(const GatedNormGradients<float>& of);
void gated_norm_backward(const GatedNormGradients<Bf16>& of);
void gated_norm_backward(const GatedNormGradients<Half>& of);

}  // namespace lft::ops::loops
