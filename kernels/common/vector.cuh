// 16-byte loads and stores of any float type on the device, with the tail and the unaligned case taken element by element.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace lft {

/// Up to kWidth neighbouring elements in registers. `wide`: the address is aligned to the pack's bytes.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Pack {
  T value[kWidth];

  __host__ __device__ static bool aligned(const T* p) { return reinterpret_cast<uintptr_t>(p) % (kWidth * sizeof(T)) == 0; }

  __device__ void load(const T* from, int live, bool wide) {
    if (wide && live == kWidth) {
      *this = *reinterpret_cast<const Pack*>(from);
      return;
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) value[i] = i < live ? from[i] : T(0.f);
  }

  __device__ void store(T* to, int live, bool wide) const {
    if (wide && live == kWidth) {
      *reinterpret_cast<Pack*>(to) = *this;
      return;
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (i < live) to[i] = value[i];
    }
  }
};

}  // namespace lft
