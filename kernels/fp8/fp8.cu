#include "kernels/common/launch.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/fp8/fp8.h"

namespace lft {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;  // elements per thread and access: 16 bytes of the narrow types

/// The largest value in the block, in every thread. All threads must call it.
__device__ uint32_t block_most(uint32_t value) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ uint32_t mosts[kWarps];
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const uint32_t other = __shfl_xor_sync(~0u, value, offset);
    value = other > value ? other : value;
  }
  if (threadIdx.x % kWarp == 0) mosts[threadIdx.x / kWarp] = value;
  __syncthreads();
  uint32_t most = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) most = mosts[warp] > most ? mosts[warp] : most;
  __syncthreads();  // before the next call writes
  return most;
}

// One block per row. The row is read twice, the second time from the caches.
template <class T>
__global__ void __launch_bounds__(kThreads) quantize_kernel(Fp8Rows rows, const T* x, bool wide) {
  for (int64_t row = blockIdx.x; row < rows.rows; row += gridDim.x) {
    const int64_t first = row * rows.cols;
    uint32_t most = 0;
    for (int64_t c = threadIdx.x * kWidth; c < rows.cols; c += kThreads * kWidth) {
      const int live = rows.cols - c < kWidth ? int(rows.cols - c) : kWidth;
      Pack<T, kWidth> value;
      value.load(x + first + c, live, wide);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float magnitude = float(value.value[i]);
        uint32_t bits;
        memcpy(&bits, &magnitude, sizeof bits);
        bits &= 0x7FFFFFFFu;
        most = bits > most ? bits : most;
      }
    }
    const Fp8RowScale scale = fp8_row_scale(block_most(most));
    if (threadIdx.x == 0) rows.scales[row] = scale.scale;
    for (int64_t c = threadIdx.x * kWidth; c < rows.cols; c += kThreads * kWidth) {
      const int live = rows.cols - c < kWidth ? int(rows.cols - c) : kWidth;
      Pack<T, kWidth> value;
      Pack<uint8_t, kWidth> codes;
      value.load(x + first + c, live, wide);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        codes.value[i] = to_e4m3(__fmul_rn(float(value.value[i]), scale.up));
      codes.store(rows.codes + first + c, live, wide);
    }
  }
}

}  // namespace

void fp8_quantize_rows(const Fp8Rows& rows, Stream stream) {
  if (rows.rows == 0 || rows.cols == 0) return;
  with_type(rows.type, [&](auto element) {
    using T = decltype(element);
    const T* x = static_cast<const T*>(rows.x);
    const bool wide = rows.cols % kWidth == 0 && Pack<T, kWidth>::aligned(x) &&
                      Pack<uint8_t, kWidth>::aligned(rows.codes);
    launch("fp8_quantize_rows launch", quantize_kernel<T>, grid_size(rows.rows, 1, 65535), kThreads,
           stream, rows, x, wide);
  });
}

}  // namespace lft
