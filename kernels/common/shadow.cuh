// write_shadow() on the device for a pack of elements.
#pragma once
#include "kernels/common/shadow.h"
#include "kernels/common/vector.cuh"

namespace lft {

template <class T, int kWidth>
__device__ void store_scaled(T* data, int64_t first, const Pack<float, kWidth>& x, float scale,
                             int live) {
  T* const to = in_global_memory(data) + first;
  Pack<T, kWidth> copy;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) copy.value[i] = T(__fmul_rn(x.value[i], scale));
  copy.store(to, live, Pack<T, kWidth>::aligned(to));
}

/// Writes elements first .. first + live - 1.
template <int kWidth>
__device__ void write_shadow(const ShadowPlace& place, int64_t first, const Pack<float, kWidth>& x,
                             int live) {
  if (place.data == nullptr) return;
  if (place.type == FloatType::kBF16) {
    store_scaled(static_cast<__nv_bfloat16*>(place.data), first, x, place.scale, live);
  } else {
    store_scaled(static_cast<__half*>(place.data), first, x, place.scale, live);
  }
}

}  // namespace lft
