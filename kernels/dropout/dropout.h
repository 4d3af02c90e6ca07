// y[i] (+)= keep(i) ? x[i] * scale : 0, with keep(i) a pure function of (seed, stream, i):
// Philox4x32-10 of block i / 8, whose i % 8-th 16 bits (low half of a word first) must be at least
// `threshold`. x, y: [n] of one type, may be the same array.
#pragma once
#include "kernels/common/float_type.h"

namespace lft {

struct DropoutArgs {
  uint64_t seed = 0, stream = 0;
  uint32_t threshold = 0;               // drop probability times 65536, at most 65535
  float scale = 1;                      // 65536 / (65536 - threshold)
  bool add = false;                     // y += instead of y =
  const uint64_t* stream_at = nullptr;  // not null: `stream` is read from here (device memory)
};

/// Reference implementation.
void dropout_ref(FloatType type, const void* x, void* y, int64_t n, const DropoutArgs& args);
/// The same on the GPU, asynchronous, bit-reproducible. Only in builds with CUDA. Throws kInternal
/// if the launch fails.
void dropout(FloatType type, const void* x, void* y, int64_t n, const DropoutArgs& args,
             Stream stream);

}  // namespace lft
