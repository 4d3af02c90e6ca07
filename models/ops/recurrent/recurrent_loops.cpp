// Compiled like cpu_loops.cpp: must not include torch headers that contain code.
#include "models/ops/recurrent/recurrent_loops.h"

#include <cmath>

#include "models/ops/core/loop_math.h"

namespace lft::ops::loops {
namespace {

constexpr int64_t kColumns = 64;  // in registers and the L1 cache

LFT_INLINE float logistic(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

LFT_INLINE float rounded(const float*, float value) { return value; }
template <class T>
LFT_INLINE float rounded(const T*, float value) {
  T narrow;
  store(&narrow, value);
  return load(&narrow);
}

template <class T>
LFT_INLINE void conv_row(const ConvRow<T>& of) {
  for (int64_t first = 0; first < of.channels; first += kColumns) {
    const int64_t count = of.channels - first < kColumns ? of.channels - first : kColumns;
    float sums[kColumns] = {};
    for (int64_t j = 0; j < of.taps; ++j) {
      const T* x = of.rows[j] + first;
      const float* w = of.weight + j * of.channels + first;
#pragma omp simd
      for (int64_t c = 0; c < count; ++c) sums[c] += w[c] * load(x + c);
    }
    T* out = of.out + first;
#pragma omp simd
    for (int64_t c = 0; c < count; ++c) store(out + c, sums[c]);  // rounds
#pragma omp simd
    for (int64_t c = 0; c < count; ++c) store(out + c, load(out + c) * logistic(load(out + c)));
  }
}

/// Some channels; dz of the last tokens are in a ring of `taps` rows.
template <class T>
struct ConvSpace {
  float dz[kMostTaps][kConvChannels];
  float sums[kConvChannels];
};

/// dx of token `at`, whose later outputs all have their dz: those of tokens up to `last`.
template <class T>
LFT_INLINE void write_conv_dx(const ConvGradients<T>& of, ConvSpace<T>& space, int64_t at,
                              int64_t last) {
  float* sums = space.sums;
  for (int64_t c = 0; c < of.channels; ++c) sums[c] = 0;
  for (int64_t j = of.taps - 1; j >= 0; --j) {
    const int64_t later = at + of.taps - 1 - j;
    if (later > last) break;
    const float *dz = space.dz[later % of.taps], *w = of.weight + j * of.stride;
#pragma omp simd
    for (int64_t c = 0; c < of.channels; ++c) sums[c] += w[c] * dz[c];
  }
  T* dx = of.dx + at * of.stride;
#pragma omp simd
  for (int64_t c = 0; c < of.channels; ++c) store(dx + c, sums[c]);
}

template <class T>
LFT_INLINE const T* conv_input(const ConvGradients<T>& of, int64_t token) {
  return token < 0 ? of.before + (token + of.taps - 1) * of.stride : of.x + token * of.stride;
}

template <class T>
LFT_INLINE void conv_backward(const ConvGradients<T>& of) {
  ConvSpace<T> space;
  for (int64_t i = 0; i < of.tokens; ++i) {
    float *sums = space.sums, *dz = space.dz[i % of.taps];
    for (int64_t c = 0; c < of.channels; ++c) sums[c] = 0;
    for (int64_t j = 0; j < of.taps; ++j) {
      const T* x = conv_input(of, i - (of.taps - 1) + j);
      const float* w = of.weight + j * of.stride;
#pragma omp simd
      for (int64_t c = 0; c < of.channels; ++c) sums[c] += w[c] * load(x + c);
    }
    const T* dy = of.dy + i * of.stride;
#pragma omp simd
    for (int64_t c = 0; c < of.channels; ++c) {
      const float z = rounded(dy, sums[c]), s = logistic(z);
      dz[c] = load(dy + c) * s * (1.0f + z * (1.0f - s));
    }
    if (of.dweight != nullptr) {
      for (int64_t j = 0; j < of.taps; ++j) {
        const T* x = conv_input(of, i - (of.taps - 1) + j);
        float* dw = of.dweight + j * of.stride;
#pragma omp simd
        for (int64_t c = 0; c < of.channels; ++c) dw[c] += dz[c] * load(x + c);
      }
    }
    if (i >= of.taps - 1) write_conv_dx(of, space, i - (of.taps - 1), i);
  }
  const int64_t left = of.tokens < of.taps - 1 ? 0 : of.tokens - (of.taps - 1);
  for (int64_t i = left; i < of.tokens; ++i) write_conv_dx(of, space, i, of.tokens - 1);
}

template <class T>
LFT_INLINE float inverse_root(const T* x, int64_t cols, float eps) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t c = 0; c < cols; ++c) squares += load(x + c) * load(x + c);
  return 1.0f / std::sqrt(squares / static_cast<float>(cols) + eps);
}

template <class T>
LFT_INLINE void gated_norm_rows(const GatedNormRows<T>& of) {
  const float* w = of.w;
  for (int64_t r = 0; r < of.rows; ++r) {
    const T *x = of.x + r * of.cols, *gate = of.gate + r * of.cols;
    T* y = of.y + r * of.cols;
    const float rstd = inverse_root(x, of.cols, of.eps);
    if (of.narrow) {
#pragma omp simd
      for (int64_t c = 0; c < of.cols; ++c) {
        const float g = load(gate + c), scaled = rounded(x, w[c] * rounded(x, load(x + c) * rstd));
        store(y + c, scaled * (g * logistic(g)));
      }
    } else {
#pragma omp simd
      for (int64_t c = 0; c < of.cols; ++c) {
        const float g = load(gate + c), scaled = w[c] * rounded(x, load(x + c) * rstd);
        store(y + c, scaled * (g * logistic(g)));
      }
    }
  }
}

template <class T>
LFT_INLINE void gated_norm_gradients(const GatedNormGradients<T>& of) {
  const float* w = of.w;
  for (int64_t r = 0; r < of.rows; ++r) {
    const T *x = of.x + r * of.cols, *gate = of.gate + r * of.cols, *dy = of.dy + r * of.cols;
    T *dx = of.dx + r * of.cols, *dgate = of.dgate + r * of.cols;
    const float rstd = inverse_root(x, of.cols, of.eps);
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < of.cols; ++c) {
      const float g = load(gate + c), s = logistic(g);
      dot += load(dy + c) * (g * s) * w[c] * load(x + c);
    }
    const float shrink = rstd * rstd * dot / static_cast<float>(of.cols);
#pragma omp simd
    for (int64_t c = 0; c < of.cols; ++c) {
      const float g = load(gate + c), s = logistic(g), from = load(x + c), d = load(dy + c);
      store(dgate + c, d * (w[c] * (from * rstd)) * s * (1.0f + g * (1.0f - s)));
      store(dx + c, rstd * (d * (g * s) * w[c] - from * shrink));
    }
  }
}

}  // namespace

#define LFT_RECURRENT(T)                                                                \
  LFT_CLONES void conv_silu(const ConvRow<T>& of) { conv_row(of); }                     \
  LFT_CLONES void conv_silu_backward(const ConvGradients<T>& of) { conv_backward(of); } \
  LFT_CLONES void gated_norm(const GatedNormRows<T>& of) { gated_norm_rows(of); }       \
  LFT_CLONES void gated_norm_backward(const GatedNormGradients<T>& of) { gated_norm_gradients(of); }
LFT_RECURRENT(float)
LFT_RECURRENT(Bf16)
LFT_RECURRENT(Half)

}  // namespace lft::ops::loops
