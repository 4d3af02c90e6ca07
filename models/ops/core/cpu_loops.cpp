// Compiled at -O3 without the shared precompiled header (see models/CMakeLists.txt): must not
// include torch headers that contain code.
#include "models/ops/core/cpu_loops.h"

#include <cmath>
#include <cstring>

#include "kernels/common/philox.h"
#include "models/ops/core/loop_math.h"

namespace lft::ops::loops {
namespace {

LFT_INLINE float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

template <class T>
LFT_INLINE void add_rows(const T* a, const T* b, T* sum, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(sum + i, load(a + i) + load(b + i));
}

template <class X, class Y>
LFT_INLINE void rms_norm_rows(const RmsNormRows<X, Y>& of, int64_t rows, int64_t cols, float eps) {
  const X *x = of.x, *delta = of.delta;
  const float* w = of.w;
  X* sum = of.sum;
  Y* y = of.y;
  float* rstd = of.rstd;
  for (int64_t r = 0; r < rows; ++r, y += cols) {
    const X* from = x + r * cols;
    if (delta != nullptr) {
      add_rows(from, delta + r * cols, sum + r * cols, cols);
      from = sum + r * cols;
    }
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < cols; ++c) squares += load(from + c) * load(from + c);
    const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(cols) + eps);
    rstd[r] = inverse;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) store(y + c, w[c] * (load(from + c) * inverse));
  }
}

template <class X, class Y>
LFT_INLINE void rms_norm_backward_rows(const RmsNormGradients<X, Y>& of, int64_t rows,
                                       int64_t cols) {
  const Y* dy = of.dy;
  const X *dsum = of.dsum, *x = of.x;
  const float *w = of.w, *rstd = of.rstd;
  X* dx = of.dx;
  for (int64_t r = 0; r < rows; ++r, x += cols, dy += cols, dx += cols) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < cols; ++c) dot += w[c] * load(dy + c) * load(x + c);
    const float inverse = rstd[r];
    const float shrink = inverse * inverse * dot / static_cast<float>(cols);
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c)
      store(dx + c, inverse * (w[c] * load(dy + c) - load(x + c) * shrink));
    if (dsum != nullptr) add_rows(dx, dsum + r * cols, dx, cols);
  }
}

template <class T>
LFT_INLINE void rope_heads(const T* x, T* y, const Rotation& by, int64_t heads, int64_t half) {
  const float *cos = by.cos, *sin = by.sin;
  const float sign = by.sign;
  for (int64_t h = 0; h < heads; ++h, x += 2 * half, y += 2 * half) {
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const float a = load(x + i), b = load(x + half + i), c = cos[i], s = sign * sin[i];
      store(y + i, a * c - b * s);
      store(y + half + i, b * c + a * s);
    }
  }
}

template <class T>
LFT_INLINE void swiglu_elements(const T* gate, const T* up, T* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    store(y + i, load(gate + i) * sigmoid(load(gate + i)) * load(up + i));
}

template <class T>
LFT_INLINE void swiglu_backward_elements(const T* dy, const T* gate, const T* up, T* dgate, T* dup,
                                         int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float d = load(dy + i), g = load(gate + i), s = sigmoid(g);
    store(dgate + i, d * load(up + i) * s * (1.0f + g * (1.0f - s)));
    store(dup + i, d * g * s);
  }
}

constexpr float kTwiceRoot = 1.5957691216f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)

/// Beyond 12 GELU's sigmoid is saturated, and powers of a gate would only overflow.
LFT_INLINE float within_gelu(float gate) {
  gate = gate > 12.0f ? 12.0f : gate;
  return gate < -12.0f ? -12.0f : gate;
}

template <class T>
LFT_INLINE void geglu_elements(const T* gate, const T* up, T* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = load(gate + i), z = within_gelu(g);
    store(y + i, g * sigmoid(kTwiceRoot * z * (1.0f + kCubic * z * z)) * load(up + i));
  }
}

template <class T>
LFT_INLINE void geglu_backward_elements(const T* dy, const T* gate, const T* up, T* dgate, T* dup,
                                        int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float d = load(dy + i), g = load(gate + i), z = within_gelu(g), cubic = kCubic * z * z;
    const float s = sigmoid(kTwiceRoot * z * (1.0f + cubic));
    const float slope = s * (1.0f + kTwiceRoot * z * (1.0f + 3.0f * cubic) * (1.0f - s));
    store(dgate + i, d * load(up + i) * slope);
    store(dup + i, d * g * s);
  }
}

template <class T>
LFT_INLINE void quick_gelu_elements(const T* x, T* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(y + i, load(x + i) * sigmoid(1.702f * load(x + i)));
}

template <class T>
LFT_INLINE void quick_gelu_backward_elements(const T* dy, const T* x, T* dx, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float z = load(x + i), s = sigmoid(1.702f * z);
    store(dx + i, load(dy + i) * s * (1.0f + 1.702f * z * (1.0f - s)));
  }
}

template <class T>
LFT_INLINE float token_logprob_row(T* logits, int64_t vocab, int64_t target, bool gradient,
                                   float scale) {
  float top = load(logits);
#pragma omp simd reduction(max : top)
  for (int64_t v = 0; v < vocab; ++v) top = load(logits + v) > top ? load(logits + v) : top;
  float sum = 0,
        poison = 0;  // poison: fast_exp saturates, so non-finite logits are detected by x - x
#pragma omp simd reduction(+ : sum, poison)
  for (int64_t v = 0; v < vocab; ++v) {
    const float x = load(logits + v);
    sum += fast_exp(x - top);
    poison += x - x;
  }
  const float log_sum = std::log(sum);
  const float result = load(logits + target) - top - log_sum + poison;
  if (!gradient) return result;
  const float factor = -scale / sum + poison;
#pragma omp simd
  for (int64_t v = 0; v < vocab; ++v) store(logits + v, factor * fast_exp(load(logits + v) - top));
  store(logits + target, scale * (1.0f - std::exp(result)));
  return result;
}

/// y + x * scale, or y. In float32 a fused multiply-add is allowed; in 16 bits the product is
/// rounded first.
LFT_INLINE float plus_kept(const float* y, float x, float scale, bool kept) {
  const float before = *y, sum = before + x * scale;
  return kept ? sum : before + 0.0f;
}
template <class T>
LFT_INLINE float plus_kept(const T* y, float x, float scale, bool kept) {
  const float scaled = x * scale;
  return load(y) + (kept ? scaled : 0.0f);
}

template <class T>
LFT_INLINE void dropout_elements(const T* x, T* y, int64_t first, int64_t n,
                                 const DropoutMask& mask, bool add) {
  constexpr int64_t kBlocks = 64, kDraws = 8 * kBlocks;  // a block has 128 bits for 8 draws
  uint32_t words[4 * kBlocks];
  uint16_t draws[kDraws];
  const uint64_t seed = mask.seed, stream = mask.stream;
  const uint32_t threshold = mask.threshold;
  const float scale = mask.scale;
  for (int64_t begin = 0; begin < n; begin += kDraws) {
    const uint64_t block0 = static_cast<uint64_t>(first + begin) / 8;
#pragma omp simd
    for (int64_t b = 0; b < kBlocks; ++b) {
      const PhiloxBlock block = philox_block(seed, stream, block0 + static_cast<uint64_t>(b));
      words[4 * b] = block.word[0];
      words[4 * b + 1] = block.word[1];
      words[4 * b + 2] = block.word[2];
      words[4 * b + 3] = block.word[3];
    }
    std::memcpy(draws, words, sizeof draws);  // little-endian: the low half of a word is first
    const int64_t count = n - begin < kDraws ? n - begin : kDraws;
    const T* from = x + begin;
    T* to = y + begin;
    // Loads are unconditional, so that the loop vectorises.
    if (add) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i)
        store(to + i, plus_kept(to + i, load(from + i), scale, draws[i] >= threshold));
    } else {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const float scaled = load(from + i) * scale;
        store(to + i, draws[i] >= threshold ? scaled : 0.0f);
      }
    }
  }
}

}  // namespace

#define LFT_RMS_NORM(X, Y)                                                                       \
  LFT_CLONES void rms_norm(const RmsNormRows<X, Y>& of, int64_t rows, int64_t cols, float eps) { \
    rms_norm_rows(of, rows, cols, eps);                                                          \
  }                                                                                              \
  LFT_CLONES void rms_norm_backward(const RmsNormGradients<X, Y>& of, int64_t rows,              \
                                    int64_t cols) {                                              \
    rms_norm_backward_rows(of, rows, cols);                                                      \
  }
LFT_RMS_NORM(float, float)
LFT_RMS_NORM(float, Bf16)
LFT_RMS_NORM(Bf16, float)
LFT_RMS_NORM(Bf16, Bf16)
LFT_RMS_NORM(Half, Half)

#define LFT_ELEMENTWISE(T)                                                                     \
  LFT_CLONES void rope(const T* x, T* y, const Rotation& by, int64_t heads, int64_t half) {    \
    rope_heads(x, y, by, heads, half);                                                         \
  }                                                                                            \
  LFT_CLONES void swiglu(const T* gate, const T* up, T* y, int64_t n) {                        \
    swiglu_elements(gate, up, y, n);                                                           \
  }                                                                                            \
  LFT_CLONES void swiglu_backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup,   \
                                  int64_t n) {                                                 \
    swiglu_backward_elements(dy, gate, up, dgate, dup, n);                                     \
  }                                                                                            \
  LFT_CLONES void geglu(const T* gate, const T* up, T* y, int64_t n) {                         \
    geglu_elements(gate, up, y, n);                                                            \
  }                                                                                            \
  LFT_CLONES void geglu_backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup,    \
                                 int64_t n) {                                                  \
    geglu_backward_elements(dy, gate, up, dgate, dup, n);                                      \
  }                                                                                            \
  LFT_CLONES void quick_gelu(const T* x, T* y, int64_t n) { quick_gelu_elements(x, y, n); }    \
  LFT_CLONES void quick_gelu_backward(const T* dy, const T* x, T* dx, int64_t n) {             \
    quick_gelu_backward_elements(dy, x, dx, n);                                                \
  }                                                                                            \
  LFT_CLONES float token_logprob(T* logits, int64_t vocab, int64_t target, bool gradient,      \
                                 float scale) {                                                \
    return token_logprob_row(logits, vocab, target, gradient, scale);                          \
  }                                                                                            \
  LFT_CLONES void dropout(const T* x, T* y, int64_t first, int64_t n, const DropoutMask& mask, \
                          bool add) {                                                          \
    dropout_elements(x, y, first, n, mask, add);                                               \
  }
LFT_ELEMENTWISE(float)
LFT_ELEMENTWISE(Bf16)
LFT_ELEMENTWISE(Half)

LFT_CLONES bool all_finite(const float* x, int64_t n) {
  float sum = 0;  // of zeros and, for a number that is not finite, NaN
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * 0;
  return sum == 0;
}

LFT_CLONES int64_t largest(const float* x, int64_t n) {
  float most = x[0];
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) most = x[i] > most ? x[i] : most;
  int64_t at = 0;
  while (x[at] != most) ++at;
  return at;
}

}  // namespace lft::ops::loops
