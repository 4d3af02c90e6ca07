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

/// to_e4m3() of two numbers, the first in the low byte. The instruction saturates infinities, which
/// a row's product with its factor cannot contain.
__device__ uint16_t two_codes(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
#else
  return uint16_t(to_e4m3(first) | to_e4m3(second) << 8);
#endif
}

constexpr int kKept = 3;  // packs of a row that a thread keeps in registers: 6,144 columns a block

template <class T>
__device__ uint32_t most_of(const Pack<T, kWidth>& pack, uint32_t most) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float magnitude = pack.get(i);
    uint32_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    bits &= 0x7FFFFFFFu;
    most = bits > most ? bits : most;
  }
  return most;
}

template <class T>
__device__ Pack<uint8_t, kWidth> codes_of(const Pack<T, kWidth>& pack, float up) {
  Pack<uint8_t, kWidth> codes;
#pragma unroll
  for (int i = 0; i < kWidth; i += 2) {
    const uint16_t pair = two_codes(__fmul_rn(pack.get(i), up), __fmul_rn(pack.get(i + 1), up));
    codes.value[i] = uint8_t(pair & 0xFF);
    codes.value[i + 1] = uint8_t(pair >> 8);
  }
  return codes;
}

// One block per row. The columns beyond those in registers are read twice, the second time from the
// caches.
template <class T>
__global__ void __launch_bounds__(kThreads) quantize_kernel(Fp8Rows rows, const T* x, bool wide) {
  constexpr int64_t kStep = kThreads * kWidth;
  const auto live = [&](int64_t c) { return rows.cols - c < kWidth ? int(rows.cols - c) : kWidth; };
  for (int64_t row = blockIdx.x; row < rows.rows; row += gridDim.x) {
    const T* const from = x + row * rows.cols;
    uint8_t* const to = rows.codes + row * rows.cols;
    const int64_t begin = threadIdx.x * kWidth, rest = begin + kKept * kStep;
    Pack<T, kWidth> kept[kKept];
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int64_t c = begin + k * kStep;
      if (c < rows.cols) kept[k].load(from + c, live(c), wide);
    }
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (begin + k * kStep < rows.cols) most = most_of(kept[k], most);
    }
    for (int64_t c = rest; c < rows.cols; c += kStep) {
      Pack<T, kWidth> pack;
      pack.load(from + c, live(c), wide);
      most = most_of(pack, most);
    }
    const Fp8RowScale scale = fp8_row_scale(block_most(most));
    if (threadIdx.x == 0) rows.scales[row] = scale.scale;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int64_t c = begin + k * kStep;
      if (c < rows.cols) codes_of(kept[k], scale.up).store(to + c, live(c), wide);
    }
    for (int64_t c = rest; c < rows.cols; c += kStep) {
      Pack<T, kWidth> pack;
      pack.load(from + c, live(c), wide);
      codes_of(pack, scale.up).store(to + c, live(c), wide);
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
