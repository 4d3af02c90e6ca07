// The mask of a dropout layer, as numbers from which each element is recomputed.
#pragma once
#include <cstdint>

namespace lft::ops {

/// Element i of a stream is kept if its 16 Philox bits are at least `threshold` (= p 2^16).
struct DropoutMask {
  uint64_t seed = 0, stream = 0;
  uint32_t threshold = 0;               // 0: no dropout
  float scale = 1;                      // 1 / (1 - p)
  const uint64_t* stream_at = nullptr;  // device memory with the stream, read by kernels of a CUDA
                                        // graph instead of `stream`; may be null
};

}  // namespace lft::ops
