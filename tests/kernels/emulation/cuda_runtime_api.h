// Enough of CUDA to run the kernel sources on a CPU, thread by thread (fibers.h). It shows that the
// code computes the right result; it does not show speed, or data races that need true concurrency.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "tests/kernels/emulation/fibers.h"

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
struct CUstream_st;
using cudaStream_t = CUstream_st*;

inline const char* cudaGetErrorString(cudaError_t) { return "emulated"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
template <class T>
cudaError_t cudaMalloc(T** data, size_t bytes) {
  *data = static_cast<T*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(static_cast<void*>(*data), 0xAB, bytes);  // not zero, as on a device
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

namespace lft::emulation {

/// A test device that records launches and inspects their arguments; null: none.
extern void (*on_launch)(std::function<void()> run);
extern void (*on_argument)(const void* bytes, size_t size);
template <class... Arguments>
void launch(std::function<void()> run, const Arguments&... arguments) {
  const auto show = [](auto argument) {
    __builtin_clear_padding(&argument);
    on_argument(&argument, sizeof argument);
  };
  if (on_argument != nullptr) (show(arguments), ...);
  if (on_launch == nullptr) return run();
  on_launch(std::move(run));
}

}  // namespace lft::emulation

inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  lft::emulation::launch([=] { std::memset(to, value, bytes); }, to);
  return cudaSuccess;
}

#define threadIdx lft::emulation::thread
#define blockIdx lft::emulation::block
#define gridDim lft::emulation::grid
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __syncthreads() lft::emulation::sync_block()
#define __threadfence()

template <class T>
T __shfl_xor_sync(unsigned, T value, int lane_mask) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = lft::emulation::exchange(bits, lane_mask);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
inline uint32_t atomicAdd(uint32_t* at, uint32_t value) {
  const uint32_t old = *at;
  *at += value;
  return old;
}
inline int atomicMin(int* at, int value) {
  const int old = *at;
  if (value < old) *at = value;
  return old;
}
inline float __fmul_rn(float a, float b) {
  const volatile float product = a * b;
  return product;
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
using std::isfinite;
