#include "kernels/adamw8/adamw8.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/shadow.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/vector.cuh"

namespace lft {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kWidth = 4;  // elements per lane and access
constexpr int kRow = kWarp * kWidth;
constexpr int kRows = int(kMomentBlock) / kRow;
using Master = Pack<float, kWidth>;
using Codes = Pack<uint8_t, kWidth>;

__device__ float warp_max(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

__device__ int live_lanes(int count, int at) {
  return count - at < 0 ? 0 : count - at < kWidth ? count - at : kWidth;
}

/// A moment of one block, processed by one warp: kRows packs per lane.
struct BlockMoment {
  Master value[kRows];

  __device__ void load(const uint8_t* codes, const float* absmax, int count, const CodeMap& map) {
    const bool wide = Codes::aligned(codes);
    const float scale = *absmax;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const int at = row * kRow + int(threadIdx.x) % kWarp * kWidth;
      Codes pack;
      pack.load(codes + at, live_lanes(count, at), wide);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) value[row].value[i] = map.value[pack.value[i]] * scale;
    }
  }

  /// All lanes must call it: its shuffles also delay the store of the new scale until every lane
  /// has loaded the old one.
  __device__ void store(uint8_t* codes, float* absmax, int count, const CodeMap& map) const {
    const bool wide = Codes::aligned(codes);
    const int lane = int(threadIdx.x) % kWarp;
    float largest = 0.f;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (row * kRow + lane * kWidth + i < count)
          largest = fmaxf(largest, fabsf(value[row].value[i]));
      }
    }
    largest = warp_max(largest);
    if (lane == 0) *absmax = largest;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const int at = row * kRow + lane * kWidth;
      Codes pack;
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        pack.value[i] = uint8_t(nearest_code(map, value[row].value[i] / largest));  // 0 / 0: code 0
      pack.store(codes + at, live_lanes(count, at), wide);
    }
  }
};

/// `first`: index in the tensor, a multiple of kMomentBlock.
template <class T>
__device__ void update_block(const AdamW8Item& item, int64_t first, int count, const CodeMaps& maps,
                             const AdamWRates& rates) {
  using Gradient = Pack<T, kWidth>;
  const int64_t block = first / kMomentBlock;
  float* const param = in_global_memory(item.param) + first;
  const T* const grad = in_global_memory(static_cast<const T*>(item.grad)) + first;
  uint8_t* const exp_avg = in_global_memory(item.exp_avg) + first;
  uint8_t* const exp_avg_sq = in_global_memory(item.exp_avg_sq) + first;
  float* const exp_avg_absmax = in_global_memory(item.exp_avg_absmax) + block;
  float* const exp_avg_sq_absmax = in_global_memory(item.exp_avg_sq_absmax) + block;
  const bool wide = Master::aligned(param) && Gradient::aligned(grad);
  BlockMoment m, v;
  m.load(exp_avg, exp_avg_absmax, count, maps.exp_avg);
  v.load(exp_avg_sq, exp_avg_sq_absmax, count, maps.exp_avg_sq);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const int at = row * kRow + int(threadIdx.x) % kWarp * kWidth, live = live_lanes(count, at);
    Master p;
    Gradient g;
    p.load(param + at, live, wide);
    g.load(grad + at, live, wide);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      adamw_element(p.value[i], float(g.value[i]), m.value[row].value[i], v.value[row].value[i],
                    rates);
    p.store(param + at, live, wide);
    write_shadow(item.shadow, first + at, p, live);
  }
  m.store(exp_avg, exp_avg_absmax, count, maps.exp_avg);
  v.store(exp_avg_sq, exp_avg_sq_absmax, count, maps.exp_avg_sq);
}

/// One thread block per chunk, one warp per moment block of the chunk.
template <class T>
__device__ void update_chunk(const AdamW8Item& item, const Chunk& chunk, const CodeMaps& maps,
                             const AdamWRates& rates) {
  for (int64_t at = int64_t(threadIdx.x) / kWarp * kMomentBlock; at < chunk.count;
       at += kWarps * kMomentBlock) {
    const int64_t left = chunk.count - at;
    update_block<T>(item, chunk.first + at, int(left < kMomentBlock ? left : kMomentBlock), maps,
                    rates);
  }
}

__global__ void __launch_bounds__(kThreads) adamw8_kernel(AdamW8Args args) {
  if (args.control->found_inf != 0.f) return;
  __shared__ CodeMaps maps;
  const float* const from = reinterpret_cast<const float*>(args.maps);
  float* const to = reinterpret_cast<float*>(&maps);
  for (int i = threadIdx.x; i < int(sizeof(CodeMaps) / sizeof(float)); i += kThreads)
    to[i] = from[i];
  __syncthreads();
  const float clip = args.control->clip;
  for (int64_t number = blockIdx.x; number < args.chunks; number += gridDim.x) {
    const Chunk chunk = find_chunk(args.items, args.count, number);
    const AdamW8Item& item = args.items[chunk.tensor];
    const AdamWRates rates = float_rates(item, args, clip);
    switch (item.type) {
      case FloatType::kF32:
        update_chunk<float>(item, chunk, maps, rates);
        break;
      case FloatType::kBF16:
        update_chunk<__nv_bfloat16>(item, chunk, maps, rates);
        break;
      case FloatType::kF16:
        update_chunk<__half>(item, chunk, maps, rates);
        break;
    }
  }
}

}  // namespace

void adamw8(const AdamW8Args& args, Stream stream) {
  if (args.chunks == 0) return;
  launch("adamw8 launch", adamw8_kernel, grid_size(args.chunks, 1), kThreads, stream, args);
}

}  // namespace lft
