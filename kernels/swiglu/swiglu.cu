#include "kernels/common/kept.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/sigmoid.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/swiglu/swiglu.h"

namespace lft {
namespace {

constexpr int kThreads = 256;

template <class T>
constexpr int kWidth = kVectorWidth<T>;

/// silu(gate) * up, s = sigmoid(gate): one expression, so that all kernels here compute the same
/// bits.
__device__ float product(float gate, float s, float up) { return gate * s * up; }

// Elements are independent: the launch shape does not affect the result.
template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(SwigluInput in, T* y, bool wide) {
  const T *gate = static_cast<const T*>(in.gate), *up = static_cast<const T*>(in.up);
  const int64_t n = in.n;
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth<T>; i < n;
       i += int64_t(gridDim.x) * kThreads * kWidth<T>) {
    const int live = n - i < kWidth<T> ? int(n - i) : kWidth<T>;
    Pack<T, kWidth<T>> g, u;
    g.load(gate + i, live, wide);
    u.load(up + i, live, wide);
#pragma unroll
    for (int k = 0; k < kWidth<T>; ++k) {
      const float z = g.get(k);
      g.value[k] = T(product(z, sigmoid(z), u.get(k)));
    }
    g.store(y + i, live, wide);
  }
}

// One Philox block per thread (kernels/dropout): one vector of a narrow type, two of float32.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(SwigluInput in, T* y, T* dropped, DropoutArgs args, bool wide) {
  const T *gate = static_cast<const T*>(in.gate), *up = static_cast<const T*>(in.up);
  const int64_t n = in.n;
  const int64_t blocks = (n + kDraws - 1) / kDraws, stride = int64_t(gridDim.x) * kThreads;
  const uint64_t stream = args.stream_at != nullptr ? *args.stream_at : args.stream;
  for (int64_t b = int64_t(blockIdx.x) * kThreads + threadIdx.x; b < blocks; b += stride) {
    const int64_t first = b * kDraws;
    const int live = n - first < kDraws ? int(n - first) : kDraws;
    Pack<T, kDraws> g, u;
    g.load(gate + first, live, wide);
    u.load(up + first, live, wide);
    const PhiloxBlock bits = philox_block(args.seed, stream, uint64_t(b));
#pragma unroll
    for (int k = 0; k < kDraws; ++k) {
      const float z = g.get(k);
      g.value[k] = T(product(z, sigmoid(z), u.get(k)));
      u.value[k] = T(kept(bits, k, float(g.value[k]), args.threshold, args.scale));
    }
    if (y != nullptr) g.store(y + first, live, wide);
    u.store(dropped + first, live, wide);
  }
}

// y: null if not needed.
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(SwigluInput in, const T* dy, T* dgate, T* dup, T* y, bool wide) {
  const T *gate = static_cast<const T*>(in.gate), *up = static_cast<const T*>(in.up);
  const int64_t n = in.n;
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth<T>; i < n;
       i += int64_t(gridDim.x) * kThreads * kWidth<T>) {
    const int live = n - i < kWidth<T> ? int(n - i) : kWidth<T>;
    Pack<T, kWidth<T>> d, g, u;
    d.load(dy + i, live, wide);
    g.load(gate + i, live, wide);
    u.load(up + i, live, wide);
#pragma unroll
    for (int k = 0; k < kWidth<T>; ++k) {
      const float grad = d.get(k), z = g.get(k), over = u.get(k), s = sigmoid(z);
      d.value[k] = T(product(z, s, over));
      g.value[k] = T(grad * over * s * (1.f + z * (1.f - s)));
      u.value[k] = T(grad * z * s);
    }
    g.store(dgate + i, live, wide);
    u.store(dup + i, live, wide);
    if (y != nullptr) d.store(y + i, live, wide);
  }
}

template <class T>
unsigned blocks(int64_t n) {
  return grid_size((n + kWidth<T> - 1) / kWidth<T>, kThreads, 1 << 20);
}

template <class T, class... Arrays>
bool aligned(const Arrays*... arrays) {
  return all_aligned<kWidth<T>>(static_cast<const T*>(arrays)...);
}

}  // namespace

void swiglu(const SwigluInput& in, void* y, Stream stream) {
  if (in.n == 0) return;
  with_type(in.type, [&](auto element) {
    using T = decltype(element);
    launch("swiglu launch", forward_kernel<T>, blocks<T>(in.n), kThreads, stream, in,
           static_cast<T*>(y), aligned<T>(in.gate, in.up, y));
  });
}

void swiglu_dropout(const SwigluInput& in, void* y, void* dropped, const DropoutArgs& args,
                    Stream stream) {
  if (in.n == 0) return;
  with_type(in.type, [&](auto element) {
    using T = decltype(element);
    const auto *g = static_cast<const T*>(in.gate), *u = static_cast<const T*>(in.up);
    auto *to = static_cast<T*>(y), *left = static_cast<T*>(dropped);
    const unsigned blocks = grid_size((in.n + kDraws - 1) / kDraws, kThreads);
    const bool wide = all_aligned<kDraws>(g, u, to, left);
    launch("swiglu dropout launch", dropout_kernel<T>, blocks, kThreads, stream, in, to, left, args,
           wide);
  });
}

void swiglu_backward(const SwigluInput& in, const void* dy, void* dgate, void* dup, void* y,
                     Stream stream) {
  if (in.n == 0) return;
  with_type(in.type, [&](auto element) {
    using T = decltype(element);
    launch("swiglu backward launch", backward_kernel<T>, blocks<T>(in.n), kThreads, stream, in,
           static_cast<const T*>(dy), static_cast<T*>(dgate), static_cast<T*>(dup),
           static_cast<T*>(y), aligned<T>(dy, in.gate, in.up, dgate, dup, y));
  });
}

}  // namespace lft
