#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/rope/rope.h"

namespace lft {
namespace {

constexpr int kThreads = 128;
constexpr int kWidth = 8;

/// Maximum number of heads per thread; half as many for float32, because of the registers.
template <class T>
constexpr int kHeads = 8 / int(sizeof(T));

/// A thread's share: kWidth adjacent pairs in several heads of a row, rotated by the same angles:
/// heads group, group + groups, ..
struct Share {
  int64_t row, angle;    // angle: index of its first cosine and sine
  int64_t group, first;  // first: index of the first pair in a head
};

/// Index: a type for rows * groups * packs; a 64-bit division would take as long as the rest.
template <class Index>
__device__ Share share_of(const RopeArgs& args, Index number, Index groups, Index packs) {
  const Index head = number / packs, row = head / groups, batch = row / Index(args.positions);
  const int64_t first = int64_t(number - head * packs) * kWidth;
  const int64_t position = int64_t(row - batch * Index(args.positions));
  const int64_t angle = (int64_t(batch) * args.angle_stride + position) * args.half + first;
  return {int64_t(row), angle, int64_t(head - row * groups), first};
}

template <class T>
__device__ void turn(Pack<T, kWidth>& a, Pack<T, kWidth>& b, const Pack<float, kWidth>& cosine,
                     const Pack<float, kWidth>& sine) {
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float left = a.get(k), right = b.get(k), c = cosine.value[k], s = sine.value[k];
    a.value[k] = T(__fsub_rn(__fmul_rn(left, c), __fmul_rn(right, s)));
    b.value[k] = T(__fadd_rn(__fmul_rn(right, c), __fmul_rn(left, s)));
  }
}

__device__ void load_angle(const RopeArgs& args, int64_t angle, int live, bool wide,
                           Pack<float, kWidth>& cosine, Pack<float, kWidth>& sine) {
  cosine.load(args.cos + angle, live, wide);
  sine.load(args.sin + angle, live, wide);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sine.value[k] *= args.sign;
}

// Both halves of a head are read before either is written, so y may be x.

/// With packs only: all heads are loaded before the first is rotated.
template <class T>
__device__ void turn_packs(const RopeArgs& args, const Share& at, int64_t groups, const T* x,
                           T* y) {
  Pack<T, kWidth> a[kHeads<T>], b[kHeads<T>];
  Pack<float, kWidth> cosine, sine;
  const int64_t first = (at.row * args.heads + at.group) * 2 * args.half + at.first;
  const int64_t step = groups * 2 * args.half;
#pragma unroll
  for (int h = 0; h < kHeads<T>; ++h) {
    const int live = at.group + h * groups < args.heads ? kWidth : 0;
    a[h].load(x + first + h * step, live, /*wide=*/true);
    b[h].load(x + first + h * step + args.half, live, /*wide=*/true);
  }
  load_angle(args, at.angle, kWidth, /*wide=*/true, cosine, sine);
#pragma unroll
  for (int h = 0; h < kHeads<T>; ++h) {
    const int live = at.group + h * groups < args.heads ? kWidth : 0;
    turn(a[h], b[h], cosine, sine);
    a[h].store(y + first + h * step, live, /*wide=*/true);
    b[h].store(y + first + h * step + args.half, live, /*wide=*/true);
  }
}

/// For any alignment and head size.
template <class T>
__device__ void turn_elements(const RopeArgs& args, const Share& at, int64_t groups, const T* x,
                              T* y) {
  Pack<T, kWidth> a, b;
  Pack<float, kWidth> cosine, sine;
  const int live = args.half - at.first < kWidth ? int(args.half - at.first) : kWidth;
  load_angle(args, at.angle, live, /*wide=*/false, cosine, sine);
#pragma unroll 1
  for (int64_t head = at.group; head < args.heads; head += groups) {
    const int64_t first = (at.row * args.heads + head) * 2 * args.half + at.first;
    a.load(x + first, live, /*wide=*/false);
    b.load(x + first + args.half, live, /*wide=*/false);
    turn(a, b, cosine, sine);
    a.store(y + first, live, /*wide=*/false);
    b.store(y + first + args.half, live, /*wide=*/false);
  }
}

template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(RopeArgs args, Index groups, Index packs, const T* x, T* y, bool wide) {
  const Index total = Index(args.rows) * groups * packs;
  for (Index n = Index(blockIdx.x) * kThreads + threadIdx.x; n < total; n += gridDim.x * kThreads) {
    const Share at = share_of(args, n, groups, packs);
    if (wide) {
      turn_packs(args, at, int64_t(groups), x, y);
    } else {
      turn_elements(args, at, int64_t(groups), x, y);
    }
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
    const int64_t groups = (args.heads + kHeads<T> - 1) / kHeads<T>,
                  packs = (args.half + kWidth - 1) / kWidth;
    const int64_t shares = args.rows * groups * packs;
    const unsigned blocks = grid_size(shares, kThreads, 1 << 20);
    if (shares < int64_t{1} << 31 && args.positions < int64_t{1} << 31) {
      launch("rope launch", rope_kernel<T, uint32_t>, blocks, kThreads, stream, args,
             uint32_t(groups), uint32_t(packs), from, to, wide);
    } else {
      launch("rope launch", rope_kernel<T, int64_t>, blocks, kThreads, stream, args, groups, packs,
             from, to, wide);
    }
  });
}

}  // namespace lft
