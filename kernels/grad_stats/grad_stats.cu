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
// One chunk by one block. Which thread takes which element does not depend on the alignment, so
// neither does the sum.

template <class T>
__device__ double chunk_squares(T* from, int count, float inv_scale) {
  constexpr int kWidth = kVectorWidth<T>;
  using Loaded = Pack<T, kWidth>;
  T* const data = in_global_memory(from);
  const bool wide = Loaded::aligned(data), unscale = inv_scale != 1.f;
  double sum = 0;
  for (int first = threadIdx.x * kWidth; first < count; first += kThreads * kWidth) {
    const int live = count - first < kWidth ? count - first : kWidth;
    Loaded pack;
    pack.load(data + first, live, wide);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {  // beyond `live`: zeros, which add nothing
      if (unscale) pack.value[i] = T(__fmul_rn(float(pack.value[i]), inv_scale));
      const double value = float(pack.value[i]);
      sum += value * value;  // the product of two floats is exact in double
    }
    if (unscale) pack.store(data + first, live, wide);
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

// ------------------------------------------------------------------------------------------------
// The last block to finish reduces everybody's partial sums.

/// True in all threads of the block that comes last. What thread 0 of every block wrote before is
/// then visible to it through L2.
__device__ bool is_last_block(uint32_t* ticket) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

__device__ void reduce(const GradStatsArgs& args, const double* partials) {
  __shared__ int first_bad;
  if (threadIdx.x == 0) first_bad = INT_MAX;
  const int lane = threadIdx.x % kWarp;
  for (int64_t t = threadIdx.x / kWarp; t < args.count; t += kWarps) {  // a warp a tensor
    const int64_t begin = args.tensors[t].first_chunk,
                  end = begin + chunks_of(args.tensors[t].count);
    double sum = 0;
#pragma unroll 4
    for (int64_t c = begin + lane; c < end; c += kWarp)
      sum += __ldcg(partials + c);  // not through this SM's L1
    sum = warp_sum(sum);
    if (lane == 0) args.squares[t] = sum;
  }
  __syncthreads();
  double sum = 0;
  int bad = INT_MAX;
  for (int64_t t = threadIdx.x; t < args.count; t += kThreads) {
    const double square = args.squares[t];
    if (!isfinite(square) && bad == INT_MAX) bad = int(t);
    sum += square;
  }
  if (bad != INT_MAX) atomicMin(&first_bad, bad);
  const double squared_norm = block_sum<kThreads>(sum);  // its barriers also close the atomicMin
  if (threadIdx.x == 0)
    decide(*args.control, squared_norm, first_bad == INT_MAX ? -1 : first_bad, args.loss,
           args.max_norm);
}

__global__ void __launch_bounds__(kThreads)
    grad_stats_kernel(GradStatsArgs args, double* partials) {
  for (int64_t number = blockIdx.x; number < args.chunks; number += gridDim.x) {
    const Chunk chunk = find_chunk(args.tensors, args.count, number);
    const double sum =
        block_sum<kThreads>(chunk_squares(args.tensors[chunk.tensor], chunk, args.inv_scale));
    if (threadIdx.x == 0) partials[number] = sum;
  }
  if (is_last_block(&args.control->ticket)) reduce(args, partials);
}

}  // namespace

void grad_stats(const GradStatsArgs& args, double* partials, Stream stream) {
  check_cuda(cudaMemsetAsync(args.control, 0, sizeof(GradControl), stream),
             "grad_stats: clearing the ticket");
  launch("grad_stats launch", grad_stats_kernel, grid_size(args.chunks, 1), kThreads, stream, args,
         partials);
}

}  // namespace lft
