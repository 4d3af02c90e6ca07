// Where sequences, their chunks and their states are.
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/gated_delta/gated_delta.h"

namespace lft::delta_kernel {

constexpr float kLengthEps = 1e-6f;
constexpr int kChunk = int(kGatedDeltaChunk);

/// A sequence's tokens, and where the states of its chunks are: slot, slot + 1, ..
struct Sequence {
  int64_t first, count, slot;

  __device__ Sequence(const GatedDeltaArgs& args, int64_t number) {
    first = args.starts[number];
    count = args.starts[number + 1] - first;
    slot = first / kChunk + number;  // the slots of earlier sequences are below it
  }
};
inline int64_t slots_of(const GatedDeltaArgs& args) {
  return args.tokens / kChunk + args.sequences + 1;
}

__device__ inline int64_t state_index(const GatedDeltaArgs& args, int64_t slot, int64_t head) {
  return (slot * args.heads + head) * args.d * args.e;
}

}  // namespace lft::delta_kernel
