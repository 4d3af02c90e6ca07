#include "kernels/common/kept.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/dropout/dropout.h"

namespace lft {
namespace {

constexpr int kThreads = 256;

// One Philox block per thread: one vector of a narrow type, two of float32. Elements are
// independent: the launch shape does not affect the result. A thread reads its elements before it
// writes them, so y may be x.
template <class T, bool kAdd>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* x, T* y, int64_t n, DropoutArgs args, bool wide) {
  const int64_t blocks = (n + kDraws - 1) / kDraws, stride = int64_t(gridDim.x) * kThreads;
  const uint64_t stream = args.stream_at != nullptr ? *args.stream_at : args.stream;
  for (int64_t b = int64_t(blockIdx.x) * kThreads + threadIdx.x; b < blocks; b += stride) {
    const int64_t first = b * kDraws;
    const int live = n - first < kDraws ? int(n - first) : kDraws;
    Pack<T, kDraws> from, to;
    from.load(x + first, live, wide);
    if constexpr (kAdd) to.load(y + first, live, wide);
    const PhiloxBlock bits = philox_block(args.seed, stream, uint64_t(b));
#pragma unroll
    for (int i = 0; i < kDraws; ++i) {
      const float left = kept(bits, i, float(from.value[i]), args.threshold, args.scale);
      to.value[i] = T(kAdd ? __fadd_rn(float(to.value[i]), left) : left);
    }
    to.store(y + first, live, wide);
  }
}

}  // namespace

void dropout(FloatType type, const void* x, void* y, int64_t n, const DropoutArgs& args,
             Stream stream) {
  if (n == 0) return;
  with_type(type, [&](auto element) {
    using T = decltype(element);
    const auto* from = static_cast<const T*>(x);
    auto* to = static_cast<T*>(y);
    const auto kernel = args.add ? dropout_kernel<T, true> : dropout_kernel<T, false>;
    const unsigned blocks = grid_size((n + kDraws - 1) / kDraws, kThreads);
    const bool wide = all_aligned<kDraws>(from, to);
    launch("dropout launch", kernel, blocks, kThreads, stream, from, to, n, args, wide);
  });
}

}  // namespace lft
