// The loop of attention to a cache on raw pointers, as in cpu_loops.h: single-threaded, compiled
// for AVX-512, AVX2 and baseline.
#pragma once
#include "models/ops/core/cpu_loops.h"

namespace lft::ops::loops {

/// The queries of one key head. q and out: [rows, width]; keys and values: [keys, width] with a
/// stride in elements from one key to the next; seen: [keys].
template <class T>
struct CacheHead {
  const T *q, *keys, *values;
  const bool* seen;
  T* out;
  int64_t rows, width, count;
  int64_t key_stride, value_stride;
  float scale;
  float* scratch;  // rows * (width + count)
};
/// out = softmax(scale q k^T) v over the keys that are seen, of which there is at least one.
void cache_head(const CacheHead<float>& of);
void cache_head(const CacheHead<Bf16>& of);
void cache_head(const CacheHead<Half>& of);

}  // namespace lft::ops::loops
