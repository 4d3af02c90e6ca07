#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/swiglu/swiglu.h"

namespace lft {
namespace {

constexpr int kThreads = 256;

template <class T>
constexpr int kWidth = 16 / sizeof(T);

__device__ float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

// Every element stands alone: the result does not depend on the launch shape.
template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(const T* gate, const T* up, T* y, int64_t n, bool wide) {
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth<T>; i < n; i += int64_t(gridDim.x) * kThreads * kWidth<T>) {
    const int live = n - i < kWidth<T> ? int(n - i) : kWidth<T>;
    Pack<T, kWidth<T>> g, u;
    g.load(gate + i, live, wide);
    u.load(up + i, live, wide);
#pragma unroll
    for (int k = 0; k < kWidth<T>; ++k) {
      const float z = float(g.value[k]);
      g.value[k] = T(z * sigmoid(z) * float(u.value[k]));
    }
    g.store(y + i, live, wide);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t n, bool wide) {
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth<T>; i < n; i += int64_t(gridDim.x) * kThreads * kWidth<T>) {
    const int live = n - i < kWidth<T> ? int(n - i) : kWidth<T>;
    Pack<T, kWidth<T>> d, g, u;
    d.load(dy + i, live, wide);
    g.load(gate + i, live, wide);
    u.load(up + i, live, wide);
#pragma unroll
    for (int k = 0; k < kWidth<T>; ++k) {
      const float grad = float(d.value[k]), z = float(g.value[k]), s = sigmoid(z);
      g.value[k] = T(grad * float(u.value[k]) * s * (1.f + z * (1.f - s)));
      u.value[k] = T(grad * z * s);
    }
    g.store(dgate + i, live, wide);
    u.store(dup + i, live, wide);
  }
}

template <class T>
unsigned blocks(int64_t n) {
  return grid_size((n + kWidth<T> - 1) / kWidth<T>, kThreads, 1 << 20);
}

template <class T, class... Arrays>
bool aligned(const Arrays*... arrays) {
  return (Pack<T, kWidth<T>>::aligned(static_cast<const T*>(arrays)) && ...);
}

}  // namespace

void swiglu(FloatType type, const void* gate, const void* up, void* y, int64_t n, Stream stream) {
  if (n == 0) return;
  with_type(type, [&](auto element) {
    using T = decltype(element);
    launch("swiglu launch", forward_kernel<T>, blocks<T>(n), kThreads, stream, static_cast<const T*>(gate), static_cast<const T*>(up),
           static_cast<T*>(y), n, aligned<T>(gate, up, y));
  });
}

void swiglu_backward(FloatType type, const void* dy, const void* gate, const void* up, void* dgate, void* dup, int64_t n, Stream stream) {
  if (n == 0) return;
  with_type(type, [&](auto element) {
    using T = decltype(element);
    launch("swiglu backward launch", backward_kernel<T>, blocks<T>(n), kThreads, stream, static_cast<const T*>(dy),
           static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(dgate), static_cast<T*>(dup), n,
           aligned<T>(dy, gate, up, dgate, dup));
  });
}

}  // namespace lft
