// Compiled like cpu_loops.cpp: must not include torch headers that contain code.
#include "models/ops/attention/cache_attention_loops.h"

#include <cstring>

#include "models/ops/core/loop_lanes.h"

namespace lft::ops::loops {
namespace {

constexpr int64_t kKeysAtOnce = 4;

/// The scores of kKeys keys for all queries, in columns of `scores`.
template <int kBytes, int kKeys, class T>
LFT_INLINE void score_keys(const CacheHead<T>& of, const float* q, int64_t key, float* scores) {
  const T* const keys = of.keys + key * of.key_stride;
  for (int64_t r = 0; r < of.rows; ++r) {
    const float* const query = q + r * of.width;
    Lanes<kBytes> sums[kKeysAtOnce] = {}, x, k;
    int64_t e = 0;
    for (; e + kLanes <= of.width; e += kLanes) {
      read(query + e, x);
      for (int64_t i = 0; i < kKeys; ++i) {
        read(keys + i * of.key_stride + e, k);
        add_product(sums[i], x, k);
      }
    }
    float found[kKeysAtOnce];
    sums_of(sums, found);
    for (int64_t i = 0; i < kKeys; ++i) {
      for (int64_t rest = e; rest < of.width; ++rest)
        found[i] += query[rest] * load(keys + i * of.key_stride + rest);
      scores[r * of.count + key + i] = found[i];
    }
  }
}

/// [rows, count] scores of all keys.
template <int kBytes, class T>
LFT_INLINE void score_all(const CacheHead<T>& of, const float* q, float* scores) {
  int64_t key = 0;
  for (; key + kKeysAtOnce <= of.count; key += kKeysAtOnce)
    score_keys<kBytes, kKeysAtOnce>(of, q, key, scores);
  for (; key < of.count; ++key) score_keys<kBytes, 1>(of, q, key, scores);
}

/// Replaces the values of keys that are not seen.
LFT_INLINE void hide(float* scores, const bool* seen, int64_t count, float value) {
  for (int64_t k = 0; k < count; ++k) scores[k] = seen[k] ? scores[k] : value;
}

/// Scores to their softmax. gaps: some keys are not seen, and get 0.
LFT_INLINE void weigh_keys(float* scores, const bool* seen, bool gaps, int64_t count, float scale) {
  if (gaps) hide(scores, seen, count, -3.4e38f);
  float top = -3.4e38f, sum = 0;
#pragma omp simd reduction(max : top)
  for (int64_t k = 0; k < count; ++k) top = scores[k] > top ? scores[k] : top;
#pragma omp simd
  for (int64_t k = 0; k < count; ++k) scores[k] = fast_exp(scale * (scores[k] - top));
  if (gaps) hide(scores, seen, count, 0);
#pragma omp simd reduction(+ : sum)
  for (int64_t k = 0; k < count; ++k) sum += scores[k];
  const float inverse = 1.0f / sum;
#pragma omp simd
  for (int64_t k = 0; k < count; ++k) scores[k] *= inverse;
}

constexpr int64_t kKeyBlock = 32;  // their values fit into the L1 cache

/// Adds the keys from `first` to `last` to kRows rows of the weighted sum, at kMany times kLanes
/// elements from `e` on: sums that do not wait for each other.
template <int kBytes, int kRows, int kMany, class T>
LFT_INLINE void mix_lanes(const CacheHead<T>& of, const float* weights, float* mixed, int64_t first,
                          int64_t last, int64_t e) {
  Lanes<kBytes> sums[kRows][kMany], value;
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kMany; ++i) read(mixed + r * of.width + e + i * kLanes, sums[r][i]);
  }
  for (int64_t k = first; k < last; ++k) {
    for (int i = 0; i < kMany; ++i) {
      read(of.values + k * of.value_stride + e + i * kLanes, value);
      for (int r = 0; r < kRows; ++r) add_product(sums[r][i], value, weights[r * of.count + k]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kMany; ++i) write(sums[r][i], mixed + r * of.width + e + i * kLanes);
  }
}

template <int kBytes, int kRows, class T>
LFT_INLINE void mix_rows(const CacheHead<T>& of, const float* weights, float* mixed, int64_t first,
                         int64_t last) {
  constexpr int kMany =
      kBytes == 64 || (kBytes == 32 && kRows == 1) ? 4 : 1;  // of 32, 16 registers
  int64_t e = 0;
  for (; e + kMany * kLanes <= of.width; e += kMany * kLanes)
    mix_lanes<kBytes, kRows, kMany>(of, weights, mixed, first, last, e);
  for (; e + kLanes <= of.width; e += kLanes)
    mix_lanes<kBytes, kRows, 1>(of, weights, mixed, first, last, e);
  for (; e < of.width; ++e) {
    for (int r = 0; r < kRows; ++r) {
      for (int64_t k = first; k < last; ++k)
        mixed[r * of.width + e] +=
            weights[r * of.count + k] * load(of.values + k * of.value_stride + e);
    }
  }
}

/// mixed = weights values: [rows, width].
template <int kBytes, class T>
LFT_INLINE void mix_values(const CacheHead<T>& of, const float* weights, float* mixed) {
  std::memset(mixed, 0, static_cast<size_t>(of.rows * of.width) * sizeof(float));
  for (int64_t first = 0; first < of.count; first += kKeyBlock) {
    const int64_t last = first + kKeyBlock < of.count ? first + kKeyBlock : of.count;
    const auto at = [&](int64_t row) { return mixed + row * of.width; };
    int64_t row = 0;
    for (; row + 4 <= of.rows; row += 4)
      mix_rows<kBytes, 4>(of, weights + row * of.count, at(row), first, last);
    const float* const rest = weights + row * of.count;
    if (of.rows - row == 3) mix_rows<kBytes, 3>(of, rest, at(row), first, last);
    if (of.rows - row == 2) mix_rows<kBytes, 2>(of, rest, at(row), first, last);
    if (of.rows - row == 1) mix_rows<kBytes, 1>(of, rest, at(row), first, last);
  }
}

/// Keys that are seen are mostly consecutive: those before the first and after the last are left
/// out.
template <class T>
LFT_INLINE CacheHead<T> seen_part(const CacheHead<T>& of) {
  int64_t first = 0, end = of.count;
  while (end > 1 && !of.seen[end - 1]) --end;
  while (first + 1 < end && !of.seen[first]) ++first;
  CacheHead<T> part = of;
  part.keys += first * of.key_stride;
  part.values += first * of.value_stride;
  part.seen += first;
  part.count = end - first;
  return part;
}

template <int kBytes, class T>
LFT_INLINE void run_head(const CacheHead<T>& all) {
  const CacheHead<T> of = seen_part(all);
  float *const q = of.scratch, *const weights = q + of.rows * of.width;
  for (int64_t i = 0; i < of.rows * of.width; ++i) q[i] = load(of.q + i);
  score_all<kBytes>(of, q, weights);
  bool gaps = false;
  for (int64_t k = 0; k < of.count; ++k) gaps |= !of.seen[k];
  for (int64_t r = 0; r < of.rows; ++r)
    weigh_keys(weights + r * of.count, of.seen, gaps, of.count, of.scale);
  mix_values<kBytes>(of, weights, q);  // the queries are no longer needed
  for (int64_t i = 0; i < of.rows * of.width; ++i) store(of.out + i, q[i]);
}

}  // namespace

LFT_VERSIONS(cache_head, (const CacheHead<float>& of), (of), run_head<kVectorBytes>(of))
LFT_VERSIONS(cache_head, (const CacheHead<Bf16>& of), (of), run_head<kVectorBytes>(of))
LFT_VERSIONS(cache_head, (const CacheHead<Half>& of), (of), run_head<kVectorBytes>(of))

}  // namespace lft::ops::loops
