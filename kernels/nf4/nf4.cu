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

constexpr int kLanes = 32;

/// A warp per block of 64 weights, two adjacent ones per lane: one byte of codes.
template <class T>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const T* w, int64_t count, Nf4Middles middle, float* scales, uint8_t* codes) {
  const int lane = int(threadIdx.x) % kLanes;
  for (int64_t block = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
       block * kNf4Block < count; block += int64_t(gridDim.x) * kThreads / kLanes) {
    const int64_t i = block * kNf4Block + 2 * lane;
    const float first = i < count ? float(w[i]) : 0.f;
    const float second = i + 1 < count ? float(w[i + 1]) : 0.f;
    float absmax = fmaxf(fabsf(first), fabsf(second));
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2)
      absmax = fmaxf(absmax, __shfl_xor_sync(0xFFFFFFFF, absmax, step));
    if (lane == 0) scales[block] = absmax;
    const float high = absmax > 0 ? first / absmax : 0.f, low = absmax > 0 ? second / absmax : 0.f;
    int code = 0;
#pragma unroll
    for (int k = 0; k < 15; ++k) {
      code += high > middle.value[k] ? 16 : 0;
      code += i + 1 < count && low > middle.value[k] ? 1 : 0;
    }
    if (i < count) codes[i / 2] = uint8_t(code);
  }
}

}  // namespace

void nf4_quantize_on_device(FloatType type, const void* w, int64_t count, float* scales,
                            uint8_t* codes, Stream stream) {
  if (count == 0) return;
  with_type(type, [&](auto element) {
    using T = decltype(element);
    launch("nf4_quantize launch", quantize_kernel<T>,
           grid_size(nf4_blocks(count), kThreads / kLanes, 1 << 20), kThreads, stream,
           static_cast<const T*>(w), count, nf4_middles(), scales, codes);
  });
}

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
