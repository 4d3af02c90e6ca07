#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/token_logprob/token_logprob.h"

namespace lft {
namespace {

/// Maximum and sum of exp(x - max) over some elements. A NaN or +inf makes the sum NaN.
struct Softmax {
  float top, sum;
};

__device__ Softmax merge(Softmax a, Softmax b) {
  const float top = fmaxf(a.top, b.top);
  const float left =
      a.top == top ? a.sum : a.sum * __expf(a.top - top);  // -inf with -inf stays 0, not NaN
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

/// Merges over the block in a fixed order; the result is in every thread.
template <int kThreads>
__device__ Softmax block_merge(Softmax mine) {
  __shared__ Softmax warps[kThreads / kWarp];
  mine = warp_merge(mine);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  const int lane = threadIdx.x % kWarp;
  mine = lane < kThreads / kWarp ? warps[lane] : Softmax{-INFINITY, 0.f};
  __syncthreads();
  return warp_merge(mine);
}

/// Adds the first `live` elements of a pack to the previous ones.
template <class T, int kWidth>
__device__ Softmax with_pack(Softmax mine, const Pack<T, kWidth>& pack, int live) {
  float top = mine.top;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) top = i < live ? fmaxf(top, pack.get(i)) : top;
  float sum = mine.top == top ? mine.sum : mine.sum * __expf(mine.top - top);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float value = pack.get(i);
    if (i < live && value != -INFINITY)
      sum += __expf(value - top);  // inf - inf and NaN make the sum NaN
  }
  return {top, sum};
}

/// scale * (onehot - softmax). target: an index in the pack, or outside of it.
template <class T, int kWidth, class Index>
__device__ void turn_to_gradient(Pack<T, kWidth>& pack, Index target, float scale,
                                 const Softmax& all) {
  const float inverse = 1.f / all.sum;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float share = __expf(pack.get(i) - all.top) * inverse;
    pack.value[i] = T(scale * ((i == target ? 1.f : 0.f) - share));
  }
}

// ------------------------------------------------------------------------------------------------
// One block per row that fits into its threads' registers: it is read once, in packs, with all
// loads in flight together.

constexpr int kHeld = 8;  // packs per thread

template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) held_kernel(TokenLogprobArgs args) {
  constexpr int kWidth = kVectorWidth<T>;
  const int64_t row = blockIdx.x;
  T* const logits = static_cast<T*>(args.logits) + row * args.vocab;
  const int vocab = int(args.vocab);
  Pack<T, kWidth> packs[kHeld];
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int v = (k * kThreads + int(threadIdx.x)) * kWidth;
    packs[k].load(logits + v, v < vocab ? kWidth : 0, /*wide=*/true);
  }
  // The other threads issue their loads before they wait for the target.
  const float at_target = threadIdx.x == 0 ? float(logits[int(args.targets[row])]) : 0.f;
  Softmax mine = {-INFINITY, 0.f};
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    if ((k * kThreads + int(threadIdx.x)) * kWidth < vocab)
      mine = with_pack(mine, packs[k], kWidth);
  }
  const Softmax all = block_merge<kThreads>(mine);  // its barriers also protect the target's logit
                                                    // until it is read
  if (threadIdx.x == 0) args.result[row] = at_target - all.top - logf(all.sum);
  if (args.scale == nullptr) return;
  const float scale = args.scale[row];
  const int target = int(args.targets[row]);
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int v = (k * kThreads + int(threadIdx.x)) * kWidth;
    turn_to_gradient(packs[k], target - v, scale, all);
    packs[k].store(logits + v, v < vocab ? kWidth : 0, /*wide=*/true);
  }
}

// ------------------------------------------------------------------------------------------------
// One block per row of any size: one pass for maximum and sum, one for the gradient. The second
// pass begins where the first one ended, with the cached data.

constexpr int kAnyThreads = 1024, kLoads = 4;  // loads in flight together

template <class T>
__global__ void __launch_bounds__(kAnyThreads) any_kernel(TokenLogprobArgs args, bool wide) {
  constexpr int kWidth = kVectorWidth<T>, kRow = kAnyThreads * kWidth;
  const int64_t vocab = args.vocab, in_rows = wide ? vocab / (kRow * kLoads) * kLoads : 0;
  const int64_t rows = (vocab + kRow - 1) / kRow;  // the first in_rows are complete and in packs
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    T* const mine_first = static_cast<T*>(args.logits) + row * vocab + threadIdx.x * kWidth;
    const int64_t target = args.targets[row];
    const float at_target = float(static_cast<T*>(args.logits)[row * vocab + target]);
    const auto live_of = [&](int64_t r) {
      const int64_t left = vocab - r * kRow - int64_t(threadIdx.x) * kWidth;
      return left < 0 ? 0 : left < kWidth ? int(left) : kWidth;
    };
    Softmax mine = {-INFINITY, 0.f};
    for (int64_t r = 0; r < in_rows; r += kLoads) {
      Pack<T, kWidth> packs[kLoads];
#pragma unroll
      for (int k = 0; k < kLoads; ++k) packs[k].load(mine_first + (r + k) * kRow, kWidth, true);
#pragma unroll
      for (int k = 0; k < kLoads; ++k) mine = with_pack(mine, packs[k], kWidth);
    }
#pragma unroll 1
    for (int64_t r = in_rows; r < rows; ++r) {
      Pack<T, kWidth> pack;
      pack.load(mine_first + r * kRow, live_of(r), wide);
      mine = with_pack(mine, pack, live_of(r));
    }
    const Softmax all = block_merge<kAnyThreads>(mine);  // its barriers: as above
    if (threadIdx.x == 0) args.result[row] = at_target - all.top - logf(all.sum);
    if (args.scale == nullptr) continue;
    const float scale = args.scale[row];
    const int64_t mine_target = target - int64_t(threadIdx.x) * kWidth;
#pragma unroll 1
    for (int64_t r = rows - 1; r >= in_rows; --r) {
      Pack<T, kWidth> pack;
      pack.load(mine_first + r * kRow, live_of(r), wide);
      turn_to_gradient(pack, mine_target - r * kRow, scale, all);
      pack.store(mine_first + r * kRow, live_of(r), wide);
    }
    for (int64_t r = in_rows - kLoads; r >= 0; r -= kLoads) {
      Pack<T, kWidth> packs[kLoads];
#pragma unroll
      for (int k = 0; k < kLoads; ++k) packs[k].load(mine_first + (r + k) * kRow, kWidth, true);
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        turn_to_gradient(packs[k], mine_target - (r + k) * kRow, scale, all);
        packs[k].store(mine_first + (r + k) * kRow, kWidth, true);
      }
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
    const char* const what = "token_logprob launch";
    const int64_t packs = args.vocab / kWidth;
    const bool held = wide && packs <= kHeld * 1024 && args.rows < int64_t{1} << 31;
    if (held && packs <= kHeld * 512) {
      launch(what, held_kernel<T, 512>, unsigned(args.rows), 512, stream, args);
    } else if (held) {
      launch(what, held_kernel<T, 1024>, unsigned(args.rows), 1024, stream, args);
    } else {
      launch(what, any_kernel<T>, grid_size(args.rows, 1, 65535), kAnyThreads, stream, args, wide);
    }
  });
}

}  // namespace lft
