#include <climits>

#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/grad_stats/grad_stats.h"

namespace lft {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// ------------------------------------------------------------------------------------------------
// One block per chunk. A thread sums its elements in order, and their assignment to threads does
// not depend on the alignment, so the sum does not either.

/// Loads that are in flight together.
constexpr int kLoads = 4;

/// Unscales a pack and adds its squares to `sum`. True if the pack must be stored.
template <class T, int kWidth>
__device__ bool add_squares(Pack<T, kWidth>& pack, float inv_scale, double& sum) {
  const bool unscale = inv_scale != 1.f;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {  // zeros beyond the chunk, which add nothing
    if (unscale) pack.value[i] = T(__fmul_rn(pack.get(i), inv_scale));
    const double value = pack.get(i);
    sum += value * value;  // the product of two floats is exact in double
  }
  return unscale;
}

template <class T>
__device__ double chunk_squares(T* from, int count, float inv_scale) {
  constexpr int kWidth = kVectorWidth<T>, kRow = kThreads * kWidth;
  using Loaded = Pack<T, kWidth>;
  T* const data = in_global_memory(from);
  const bool wide = Loaded::aligned(data);
  double sum = 0;
  int first = threadIdx.x * kWidth;
  const int in_rows = wide ? count / (kRow * kLoads) * (kRow * kLoads) : 0;
  for (; first < in_rows; first += kRow * kLoads) {
    Loaded packs[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) packs[k].load(data + first + k * kRow, kWidth, /*wide=*/true);
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      if (add_squares(packs[k], inv_scale, sum))
        packs[k].store(data + first + k * kRow, kWidth, /*wide=*/true);
    }
  }
#pragma unroll 1
  for (; first < count; first += kRow) {
    const int live = count - first < kWidth ? count - first : kWidth;
    Loaded pack;
    pack.load(data + first, live, wide);
    if (add_squares(pack, inv_scale, sum)) pack.store(data + first, live, wide);
  }
  return sum;
}

__device__ double chunk_squares(const GradTensor& tensor, const Chunk& chunk, float inv_scale) {
  const int count = int(chunk.count);
  switch (tensor.type) {
    case FloatType::kF32:
      return chunk_squares(static_cast<float*>(tensor.data) + chunk.first, count, inv_scale);
    case FloatType::kBF16:
      return chunk_squares(static_cast<__nv_bfloat16*>(tensor.data) + chunk.first, count,
                           inv_scale);
    case FloatType::kF16:
      return chunk_squares(static_cast<__half*>(tensor.data) + chunk.first, count, inv_scale);
  }
  return 0;
}

__global__ void __launch_bounds__(kThreads)
    grad_stats_kernel(GradStatsArgs args, double* partials) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.control = {};  // resets the kernel's ticket, too
  for (int64_t number = blockIdx.x; number < args.chunks; number += gridDim.x) {
    const Chunk chunk = find_chunk(args.tensors, args.count, number);
    const double sum =
        block_sum<kThreads>(chunk_squares(args.tensors[chunk.tensor], chunk, args.inv_scale));
    if (threadIdx.x == 0) partials[number] = sum;
  }
}

// ------------------------------------------------------------------------------------------------
// Reduces the chunks' sums to the tensors', one warp each; the last block to finish sums all.

/// True in all threads of the block that finishes last. The earlier writes of all blocks are then
/// visible to it through L2.
__device__ bool is_last_block(uint32_t* ticket) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  __syncthreads();
  __threadfence();
  return last;
}

__device__ void reduce_tensors(const GradStatsArgs& args) {
  __shared__ int first_bad;
  if (threadIdx.x == 0) first_bad = INT_MAX;
  __syncthreads();
  double sum = 0;
  int bad = INT_MAX;
#pragma unroll 4
  for (int64_t t = threadIdx.x; t < args.count; t += kThreads) {
    const double square = __ldcg(args.squares + t);  // bypasses this SM's L1
    if (!isfinite(square) && bad == INT_MAX) bad = int(t);
    sum += square;
  }
  if (bad != INT_MAX) atomicMin(&first_bad, bad);
  const double squared_norm = block_sum<kThreads>(sum);  // its barriers also order the atomicMin
  if (threadIdx.x == 0)
    decide(*args.control, squared_norm, first_bad == INT_MAX ? -1 : first_bad, args.loss,
           args.max_norm);
}

__global__ void __launch_bounds__(kThreads)
    reduce_kernel(GradStatsArgs args, const double* partials) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t t = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp; t < args.count;
       t += int64_t(gridDim.x) * kWarps) {
    const int64_t begin = args.tensors[t].first_chunk,
                  end = begin + chunks_of(args.tensors[t].count);
    double sum = 0;
#pragma unroll 4
    for (int64_t c = begin + lane; c < end; c += kWarp) sum += partials[c];
    sum = warp_sum(sum);
    if (lane == 0) args.squares[t] = sum;
  }
  if (is_last_block(&args.control->ticket)) reduce_tensors(args);
}

}  // namespace

void grad_stats(const GradStatsArgs& args, double* partials, Stream stream) {
  launch("grad_stats launch", grad_stats_kernel, grid_size(args.chunks, 1), kThreads, stream, args,
         partials);
  launch("grad_stats reduction launch", reduce_kernel, grid_size(args.count, kWarps), kThreads,
         stream, args, partials);
}

}  // namespace lft
