#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/nf4/nf4.h"

namespace lft {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;  // weights per thread: 4 bytes of codes, all of one block

constexpr int kPacks = 4;  // per thread, all loaded before the first is used

template <class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(Nf4Weight from, Nf4Map map, const float* scale_values, Nf4Range range, T* out,
                      bool wide) {
  __shared__ float values[16];
  if (threadIdx.x < 16) values[threadIdx.x] = map.value[threadIdx.x];
  __syncthreads();
  constexpr int64_t kStep = kThreads * kWidth;
  for (int64_t first = int64_t(blockIdx.x) * kPacks * kStep + threadIdx.x * kWidth;
       first < range.count; first += int64_t(gridDim.x) * kPacks * kStep) {
    const auto at = [&](int k) { return first + k * kStep; };
    const auto live = [&](int k) {
      const int64_t left = range.count - at(k);
      return left < kWidth ? int(left) : kWidth;
    };
    Pack<uint8_t, kWidth / 2> codes[kPacks];
    uint8_t scale_codes[kPacks];
    float absmax[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (at(k) >= range.count) continue;
      const int64_t i = range.first + at(k), block = i / kNf4Block;
      codes[k].load(from.codes + i / 2, (live(k) + 1) / 2, wide);
      scale_codes[k] = from.scale_codes[block];
      absmax[k] = from.scale_absmax[block / kNf4ScaleBlock];
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (at(k) >= range.count) continue;
      const float scale =
          __fadd_rn(__fmul_rn(scale_values[scale_codes[k]], absmax[k]), from.scale_offset);
      Pack<T, kWidth> pack;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const int code = i % 2 == 0 ? codes[k].value[i / 2] >> 4 : codes[k].value[i / 2] & 15;
        pack.value[i] = T(__fmul_rn(values[code], scale));
      }
      pack.store(out + at(k), live(k), wide);
    }
  }
}

}  // namespace

void nf4_dequantize(const Nf4Weight& from, const float* scale_values, FloatType type,
                    Nf4Range range, void* out, Stream stream) {
  if (range.count == 0) return;
  with_type(type, [&](auto element) {
    using T = decltype(element);
    T* to = static_cast<T*>(out);
    const bool wide =
        Pack<T, kWidth>::aligned(to) && Pack<uint8_t, kWidth / 2>::aligned(from.codes);
    launch("nf4_dequantize launch", dequantize_kernel<T>,
           grid_size((range.count + kWidth - 1) / kWidth, kThreads * kPacks, 1 << 20), kThreads,
           stream, from, nf4_map(), scale_values, range, to, wide);
  });
}

}  // namespace lft
