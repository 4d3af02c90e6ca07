#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/rope/rope.h"

namespace lft {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;

// A thread takes kWidth neighbouring pairs of one head: two packs, read before either is written,
// so y may be x.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(RopeArgs args, const T* x, T* y, bool wide) {
  const int64_t per_head = (args.half + kWidth - 1) / kWidth,
                total = args.rows * args.heads * per_head;
  for (int64_t n = int64_t(blockIdx.x) * kThreads + threadIdx.x; n < total;
       n += int64_t(gridDim.x) * kThreads) {
    const int64_t head = n / per_head, i = n % per_head * kWidth, row = head / args.heads;
    const int64_t angle =
        (row / args.positions * args.angle_stride + row % args.positions) * args.half + i;
    const int64_t first = head * 2 * args.half + i;
    const int live = args.half - i < kWidth ? int(args.half - i) : kWidth;
    Pack<T, kWidth> a, b;
    Pack<float, kWidth> c, s;
    a.load(x + first, live, wide);
    b.load(x + first + args.half, live, wide);
    c.load(args.cos + angle, live, wide);
    s.load(args.sin + angle, live, wide);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float left = float(a.value[k]), right = float(b.value[k]),
                  sine = args.sign * s.value[k];
      a.value[k] = T(__fsub_rn(__fmul_rn(left, c.value[k]), __fmul_rn(right, sine)));
      b.value[k] = T(__fadd_rn(__fmul_rn(right, c.value[k]), __fmul_rn(left, sine)));
    }
    a.store(y + first, live, wide);
    b.store(y + first + args.half, live, wide);
  }
}

}  // namespace

void rope(const RopeArgs& args, const void* x, void* y, Stream stream) {
  if (args.rows * args.heads * args.half == 0) return;
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    const auto* from = static_cast<const T*>(x);
    auto* to = static_cast<T*>(y);
    const bool wide = args.half % kWidth == 0 && Pack<T, kWidth>::aligned(from) &&
                      Pack<T, kWidth>::aligned(to) && Pack<float, kWidth>::aligned(args.cos) &&
                      Pack<float, kWidth>::aligned(args.sin);
    const int64_t packs = args.rows * args.heads * ((args.half + kWidth - 1) / kWidth);
    launch("rope launch", rope_kernel<T>, grid_size(packs, kThreads, 1 << 20), kThreads, stream,
           args, from, to, wide);
  });
}

}  // namespace lft
