// 16-byte loads and stores of any float type on the device; the tail and unaligned data are
// processed element by element.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lft {

/// The most bytes that one instruction moves.
constexpr int kVectorBytes = 16;

/// Number of elements of T in kVectorBytes.
template <class T>
constexpr int kVectorWidth = kVectorBytes / int(sizeof(T));

/// The alignment of a pack of this many bytes.
constexpr int pack_alignment(int bytes) { return bytes < kVectorBytes ? bytes : kVectorBytes; }

/// Up to kWidth adjacent elements in registers; more than 16 bytes are several vectors. `wide`: the
/// address is aligned to the pack's size, or to 16 bytes for a larger pack.
template <class T, int kWidth>
struct alignas(pack_alignment(kWidth* int(sizeof(T)))) Pack {
  T value[kWidth];

  __host__ __device__ static bool aligned(const T* p) {
    const auto at = reinterpret_cast<uintptr_t>(p);
    return at % alignof(Pack) == 0;
  }

  /// Element i as float. A bfloat16 is extracted from a word of two, so a thread that keeps packs
  /// for long needs half the registers.
  __device__ float get(int i) const {
#ifdef __CUDACC__
    if constexpr (std::is_same_v<T, __nv_bfloat16> && kWidth % 2 == 0) {
      uint32_t pair;
      memcpy(&pair, value + i / 2 * 2, sizeof pair);
      return __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u);
    }
#endif
    return float(value[i]);
  }

  __device__ void load(const T* from, int live, bool wide) {
    if (wide && live == kWidth) {
      load_whole(from);
      return;
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) value[i] = i < live ? from[i] : T(0.f);
  }

  __device__ void store(T* to, int live, bool wide) const {
    if (wide && live == kWidth) {
      store_whole(to);
      return;
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (i < live) to[i] = value[i];
    }
  }

 private:
  // As vectors, so that nvcc keeps words in registers instead of elements; an assignment could
  // become narrow stores.
  static constexpr int kVectors = kWidth * int(sizeof(T)) / kVectorBytes;  // 0: narrower

  __device__ void load_whole(const T* from) {
#ifdef __CUDACC__
    if constexpr (kVectors > 0) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const uint4 vector = reinterpret_cast<const uint4*>(from)[i];
        memcpy(value + i * kVectorWidth<T>, &vector, sizeof vector);
      }
      return;
    }
#endif
    *this = *reinterpret_cast<const Pack*>(from);
  }

  __device__ void store_whole(T* to) const {
#ifdef __CUDACC__
    if constexpr (kVectors > 0) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        uint4 vector;
        memcpy(&vector, value + i * kVectorWidth<T>, sizeof vector);
        const auto at = __cvta_generic_to_global(to + i * kVectorWidth<T>);
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(vector.x),
                     "r"(vector.y), "r"(vector.z), "r"(vector.w)
                     : "memory");
      }
      return;
    }
#endif
    *reinterpret_cast<Pack*>(to) = *this;
  }
};

/// p, marked as global memory: nvcc cannot infer this for a pointer that was loaded from memory.
template <class T>
__device__ T* in_global_memory(T* p) {
#ifdef __CUDACC__
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

/// Whether packs of kWidth can be read and written at each of these addresses; null is aligned.
template <int kWidth, class... T>
bool all_aligned(const T*... arrays) {
  return (Pack<T, kWidth>::aligned(arrays) && ...);
}

}  // namespace lft
