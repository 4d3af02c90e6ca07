// Dispatch from the FloatType of a call to the element types of a kernel, and warp and block sums
// in a fixed order.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/float_type.h"

namespace lft {

/// Calls body(T{}) with T the element type of `type`.
template <class Body>
void with_type(FloatType type, const Body& body) {
  switch (type) {
    case FloatType::kF32:
      return body(float{});
    case FloatType::kBF16:
      return body(__nv_bfloat16{});
    case FloatType::kF16:
      return body(__half{});
  }
}

constexpr int kWarp = 32;

/// The sum over the warp, in every lane, in a fixed order.
template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

/// The sum over a block of kThreads, in every thread. All threads must call it.
template <int kThreads, class T>
__device__ T block_sum(T value) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ T sums[kWarps];
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  T total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) total += sums[warp];
  __syncthreads();  // before the next call writes
  return total;
}

}  // namespace lft
