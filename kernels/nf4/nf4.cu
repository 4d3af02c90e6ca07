#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/nf4/nf4.h"

namespace lft {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;  // weights per thread: 4 bytes of codes, all of one block

template <class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(Nf4Weight from, Nf4Map map, const float* scale_values, Nf4Range range, T* out,
                      bool wide) {
  __shared__ float values[16];
  if (threadIdx.x < 16) values[threadIdx.x] = map.value[threadIdx.x];
  __syncthreads();
  for (int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth; at < range.count;
       at += int64_t(gridDim.x) * kThreads * kWidth) {
    const int64_t i = range.first + at, block = i / kNf4Block;
    const int live = range.count - at < kWidth ? int(range.count - at) : kWidth;
    const float absmax = from.scale_absmax[block / kNf4ScaleBlock];
    const float scale =
        __fadd_rn(__fmul_rn(scale_values[from.scale_codes[block]], absmax), from.scale_offset);
    Pack<uint8_t, kWidth / 2> codes;
    codes.load(from.codes + i / 2, (live + 1) / 2, wide);
    Pack<T, kWidth> pack;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const int code = k % 2 == 0 ? codes.value[k / 2] >> 4 : codes.value[k / 2] & 15;
      pack.value[k] = T(__fmul_rn(values[code], scale));
    }
    pack.store(out + at, live, wide);
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
           grid_size((range.count + kWidth - 1) / kWidth, kThreads, 1 << 20), kThreads, stream,
           from, nf4_map(), scale_values, range, to, wide);
  });
}

}  // namespace lft
