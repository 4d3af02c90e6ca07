#include "kernels/common/launch.cuh"
#include "kernels/common/sigmoid.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/quick_gelu/quick_gelu.h"

namespace lft {
namespace {

constexpr int kThreads = 256;

// Elements are independent: the launch shape does not affect the result.
template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(const T* x, T* y, int64_t n, bool wide) {
  constexpr int kWidth = kVectorWidth<T>;
  const int64_t first = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  for (int64_t i = first; i < n; i += int64_t(gridDim.x) * kThreads * kWidth) {
    const int live = n - i < kWidth ? int(n - i) : kWidth;
    Pack<T, kWidth> pack;
    pack.load(x + i, live, wide);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float z = float(pack.value[k]);
      pack.value[k] = T(z * sigmoid(kQuickGelu * z));
    }
    pack.store(y + i, live, wide);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const T* dy, const T* x, T* dx, int64_t n, bool wide) {
  constexpr int kWidth = kVectorWidth<T>;
  const int64_t first = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  for (int64_t i = first; i < n; i += int64_t(gridDim.x) * kThreads * kWidth) {
    const int live = n - i < kWidth ? int(n - i) : kWidth;
    Pack<T, kWidth> grad, pack;
    grad.load(dy + i, live, wide);
    pack.load(x + i, live, wide);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float z = float(pack.value[k]), s = sigmoid(kQuickGelu * z);
      pack.value[k] = T(float(grad.value[k]) * s * (1.f + kQuickGelu * z * (1.f - s)));
    }
    pack.store(dx + i, live, wide);
  }
}

template <class T>
unsigned blocks(int64_t n) {
  return grid_size((n + kVectorWidth<T> - 1) / kVectorWidth<T>, kThreads, 1 << 20);
}

}  // namespace

void quick_gelu(FloatType type, const void* x, void* y, int64_t n, Stream stream) {
  if (n == 0) return;
  with_type(type, [&](auto element) {
    using T = decltype(element);
    const auto* from = static_cast<const T*>(x);
    auto* to = static_cast<T*>(y);
    const bool wide = all_aligned<kVectorWidth<T>>(from, to);
    launch("quick_gelu launch", forward_kernel<T>, blocks<T>(n), kThreads, stream, from, to, n,
           wide);
  });
}

void quick_gelu_backward(FloatType type, const void* dy, const void* x, void* dx, int64_t n,
                         Stream stream) {
  if (n == 0) return;
  with_type(type, [&](auto element) {
    using T = decltype(element);
    const auto *grad = static_cast<const T*>(dy), *from = static_cast<const T*>(x);
    auto* to = static_cast<T*>(dx);
    const bool wide = all_aligned<kVectorWidth<T>>(grad, from, to);
    launch("quick_gelu backward launch", backward_kernel<T>, blocks<T>(n), kThreads, stream, grad,
           from, to, n, wide);
  });
}

}  // namespace lft
