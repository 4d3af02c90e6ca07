// 16-byte loads and stores of any float type on the device, with the tail and the unaligned case
// taken element by element.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

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

  /// Element i, widened. Of bfloat16 it is cut out of a word of two: a thread that keeps packs for
  /// long keeps half as many registers.
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
  // By vectors: nvcc then keeps words, not elements, in registers; and of an assignment it may make
  // narrow stores.
  static constexpr int kVectors = kWidth * int(sizeof(T)) / kVectorBytes;  // 0: narrower than one

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
