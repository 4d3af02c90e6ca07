// Compiled at -O3 without the shared precompiled header (see models/CMakeLists.txt), like
// cpu_loops.cpp.
#include "models/ops/update/cpu_update.h"

#include <bit>
#include <cstring>

#include "models/ops/core/loop_math.h"

namespace lft::ops::loops {
namespace {

template <class T>
LFT_INLINE double squares(const T* g, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const double value = load(g + i);
    sum += value * value;
  }
  return sum;
}

template <class T>
LFT_INLINE void unscale(T* g, int64_t n, float inv_scale) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(g + i, load(g + i) * inv_scale);
}

template <class T>
LFT_INLINE double check(void* data, int64_t n, float inv_scale) {
  T* g = static_cast<T*>(data);
  if (inv_scale == 1.0f) return squares(g, n);
  constexpr int64_t kBlock =
      2048;  // stays in the L1 cache between the two loops, which vectorise only separately
  double sum = 0;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = n - first < kBlock ? n - first : kBlock;
    unscale(g + first, count, inv_scale);
    sum += squares(g + first, count);
  }
  return sum;
}

template <class T>
LFT_INLINE void update(float* param, const void* data, float* exp_avg, float* exp_avg_sq, int64_t n,
                       const AdamWRates& constants) {
  const T* grad = static_cast<const T*>(data);
  const AdamWRates rates = constants;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    float p = param[i], m = exp_avg[i], v = exp_avg_sq[i];
    adamw_element(p, load(grad + i), m, v, rates);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    param[i] = p;
  }
}

template <class T>
LFT_INLINE void scale_to(void* data, const float* x, int64_t n, float scale) {
  T* to = static_cast<T*>(data);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(to + i, x[i] * scale);
}

LFT_INLINE void decode(const MomentLoop& moment, int64_t first, int64_t count, float* value) {
  const float* const values = moment.code.map.value;
  const uint8_t* const codes = moment.codes + first;
  const float absmax = moment.absmax[first / kMomentBlock];
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) value[i] = values[codes[i]] * absmax;
}

LFT_INLINE void encode(const MomentLoop& moment, int64_t first, int64_t count, const float* value) {
  uint8_t* const codes = moment.codes + first;
  float absmax = 0;
#pragma omp simd reduction(max : absmax)
  for (int64_t i = 0; i < count; ++i)
    absmax = std::fabs(value[i]) > absmax ? std::fabs(value[i]) : absmax;
  moment.absmax[first / kMomentBlock] = absmax;
  if (absmax == 0) {
    std::memset(codes, 0, count);
    return;
  }
  const int32_t* const first_code = moment.code.buckets.first();
  const float* const middle = moment.code.map.middle;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float x = value[i] / absmax;
    const int32_t bits = std::bit_cast<int32_t>(x),
                  top = (bits & 0x7FFFFFFF) >> CodeBuckets::kShift;
    const int32_t bucket = (top > CodeBuckets::kLowest ? top - CodeBuckets::kLowest : 0) +
                           (bits < 0 ? CodeBuckets::kPositive : 0);
    const int32_t code = first_code[bucket];
    codes[i] = static_cast<uint8_t>(code + (middle[code] < x ? 1 : 0));
  }
}

template <class T>
LFT_INLINE void update8(float* param, const void* data, const MomentLoop& exp_avg,
                        const MomentLoop& exp_avg_sq, int64_t n, const AdamWRates& rates) {
  alignas(64) float m[kMomentBlock], v[kMomentBlock];
  for (int64_t first = 0; first < n; first += kMomentBlock) {
    const int64_t count = n - first < kMomentBlock ? n - first : kMomentBlock;
    decode(exp_avg, first, count, m);
    decode(exp_avg_sq, first, count, v);
    update<T>(param + first, static_cast<const T*>(data) + first, m, v, count, rates);
    encode(exp_avg, first, count, m);
    encode(exp_avg_sq, first, count, v);
  }
}

}  // namespace

CodeBuckets::CodeBuckets(const CodeMap& map) : first_(2 * kPositive) {
  for (int32_t bucket = 0; bucket < kPositive; ++bucket) {
    const float low = bucket == 0 ? 0 : std::bit_cast<float>((bucket + kLowest) << kShift);
    const float high =
        bucket + 1 == kPositive ? 1 : std::bit_cast<float>(((bucket + kLowest + 1) << kShift) - 1);
    first_[bucket] = nearest_code(map, low);
    first_[kPositive + bucket] = nearest_code(map, -high);
  }
}

LFT_CLONES double unscale_squares(FloatType type, void* g, int64_t n, float inv_scale) {
  if (type == FloatType::kF32) return check<float>(g, n, inv_scale);
  return type == FloatType::kBF16 ? check<Bf16>(g, n, inv_scale) : check<Half>(g, n, inv_scale);
}

LFT_CLONES void adamw(float* param, const GradLoop& grad, float* exp_avg, float* exp_avg_sq,
                      int64_t n, const AdamWRates& rates) {
  const void* const g = grad.data;
  if (grad.type == FloatType::kF32) return update<float>(param, g, exp_avg, exp_avg_sq, n, rates);
  if (grad.type == FloatType::kBF16) return update<Bf16>(param, g, exp_avg, exp_avg_sq, n, rates);
  update<Half>(param, g, exp_avg, exp_avg_sq, n, rates);
}

LFT_CLONES void shadow(FloatType type, void* to, const float* x, int64_t n, float scale) {
  if (type == FloatType::kBF16) return scale_to<Bf16>(to, x, n, scale);
  scale_to<Half>(to, x, n, scale);
}

LFT_CLONES void adamw8(float* param, const GradLoop& grad, const MomentLoop& exp_avg,
                       const MomentLoop& exp_avg_sq, int64_t n, const AdamWRates& rates) {
  const void* const g = grad.data;
  if (grad.type == FloatType::kF32) return update8<float>(param, g, exp_avg, exp_avg_sq, n, rates);
  if (grad.type == FloatType::kBF16) return update8<Bf16>(param, g, exp_avg, exp_avg_sq, n, rates);
  update8<Half>(param, g, exp_avg, exp_avg_sq, n, rates);
}

}  // namespace lft::ops::loops
