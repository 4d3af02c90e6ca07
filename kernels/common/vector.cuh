// 16-byte loads and stores of any float type on the device, with the tail and the unaligned case
// taken element by element.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace lft {

/// The bytes that one instruction moves at most.
constexpr int kVectorBytes = 16;

/// Elements of T in kVectorBytes.
template <class T>
constexpr int kVectorWidth = kVectorBytes / int(sizeof(T));

/// What a pack of so many bytes is aligned to.
constexpr int pack_alignment(int bytes) { return bytes < kVectorBytes ? bytes : kVectorBytes; }

/// Up to kWidth neighbouring elements in registers; of more than 16 bytes several vectors.
/// `wide`: the address is aligned to the pack's bytes, or to 16 where it has more.
template <class T, int kWidth>
struct alignas(pack_alignment(kWidth* int(sizeof(T)))) Pack {
  T value[kWidth];

  __host__ __device__ static bool aligned(const T* p) {
    const auto at = reinterpret_cast<uintptr_t>(p);
    return at % alignof(Pack) == 0;
  }

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

/// p, known to be in device memory: of a pointer that was itself read from memory nvcc cannot tell.
template <class T>
__device__ T* in_global_memory(T* p) {
#ifdef __CUDACC__
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

/// Whether packs of kWidth may be read and written at each of these addresses; null is aligned.
template <int kWidth, class... T>
bool all_aligned(const T*... arrays) {
  return (Pack<T, kWidth>::aligned(arrays) && ...);
}

}  // namespace lft
