#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/token_logprob/token_logprob.h"

namespace lft {
namespace {

constexpr int kThreads = 512;

/// max and sum of exp(x - max) over some elements. A NaN or +inf among them makes the sum NaN.
struct Softmax {
  float top, sum;
};

__device__ Softmax merge(Softmax a, Softmax b) {
  const float top = fmaxf(a.top, b.top);
  const float left =
      a.top == top ? a.sum : a.sum * __expf(a.top - top);  // -inf beside -inf stays 0, not NaN
  const float right = b.top == top ? b.sum : b.sum * __expf(b.top - top);
  return {top, left + right};
}

__device__ Softmax warp_merge(Softmax mine) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    mine = merge(mine,
                 {__shfl_xor_sync(~0u, mine.top, offset), __shfl_xor_sync(~0u, mine.sum, offset)});
  }
  return mine;
}

/// Over the block, in every thread, in a fixed order.
__device__ Softmax block_merge(Softmax mine) {
  __shared__ Softmax warps[kThreads / kWarp];
  mine = warp_merge(mine);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Softmax total = warps[0];
#pragma unroll
  for (int warp = 1; warp < kThreads / kWarp; ++warp) total = merge(total, warps[warp]);
  __syncthreads();
  return total;
}

// A block a row: one pass for maximum and sum, one for the gradient, which comes from L2.
template <class T>
__global__ void __launch_bounds__(kThreads) token_logprob_kernel(TokenLogprobArgs args, bool wide) {
  constexpr int kWidth = kVectorWidth<T>;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    T* logits = static_cast<T*>(args.logits) + row * args.vocab;
    const int64_t target = args.targets[row];
    const float at_target = float(logits[target]);
    Softmax mine = {-INFINITY, 0.f};
    for (int64_t v = threadIdx.x * kWidth; v < args.vocab; v += kThreads * kWidth) {
      const int live = args.vocab - v < kWidth ? int(args.vocab - v) : kWidth;
      Pack<T, kWidth> pack;
      pack.load(logits + v, live, wide);
      float top = mine.top;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) top = i < live ? fmaxf(top, float(pack.value[i])) : top;
      float sum = mine.top == top ? mine.sum : mine.sum * __expf(mine.top - top);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float value = float(pack.value[i]);
        if (i < live && value != -INFINITY)
          sum += __expf(value - top);  // inf - inf and NaN poison the sum
      }
      mine = {top, sum};
    }
    const Softmax all = block_merge(mine);  // its barriers also let every thread read the target's
                                            // logit before any is overwritten
    if (threadIdx.x == 0) args.result[row] = at_target - all.top - logf(all.sum);
    if (args.scale == nullptr) continue;
    const float scale = args.scale[row], inverse = 1.f / all.sum;
    for (int64_t v = threadIdx.x * kWidth; v < args.vocab; v += kThreads * kWidth) {
      const int live = args.vocab - v < kWidth ? int(args.vocab - v) : kWidth;
      Pack<T, kWidth> pack;
      pack.load(logits + v, live, wide);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float share = __expf(float(pack.value[i]) - all.top) * inverse;
        pack.value[i] = T(scale * ((v + i == target ? 1.f : 0.f) - share));
      }
      pack.store(logits + v, live, wide);
    }
  }
}

}  // namespace

void token_logprob(const TokenLogprobArgs& args, Stream stream) {
  if (args.rows == 0) return;
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kWidth = kVectorWidth<T>;
    const bool wide =
        args.vocab % kWidth == 0 && Pack<T, kWidth>::aligned(static_cast<const T*>(args.logits));
    launch("token_logprob launch", token_logprob_kernel<T>, grid_size(args.rows, 1, 65535),
           kThreads, stream, args, wide);
  });
}

}  // namespace lft
