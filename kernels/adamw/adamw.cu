#include "kernels/adamw/adamw.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/shadow.cuh"
#include "kernels/common/vector.cuh"

namespace lft {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // elements per thread and access

// One block per chunk. Elements are independent: the launch shape does not affect the result.
template <class T>
__device__ void update_chunk(const AdamWItem& item, const Chunk& chunk, const AdamWRates& rates) {
  using Master = Pack<float, kWidth>;
  using Gradient = Pack<T, kWidth>;
  float* const param = in_global_memory(item.param) + chunk.first;
  float* const exp_avg = in_global_memory(item.exp_avg) + chunk.first;
  float* const exp_avg_sq = in_global_memory(item.exp_avg_sq) + chunk.first;
  const T* const grad = in_global_memory(static_cast<const T*>(item.grad)) + chunk.first;
  const bool wide = Master::aligned(param) && Master::aligned(exp_avg) &&
                    Master::aligned(exp_avg_sq) && Gradient::aligned(grad);
  const int count = int(chunk.count);
  for (int first = threadIdx.x * kWidth; first < count; first += kThreads * kWidth) {
    const int live = count - first < kWidth ? count - first : kWidth;
    Master p, m, v;
    Gradient g;
    g.load(grad + first, live, wide);
    p.load(param + first, live, wide);
    m.load(exp_avg + first, live, wide);
    v.load(exp_avg_sq + first, live, wide);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      adamw_element(p.value[i], float(g.value[i]), m.value[i], v.value[i], rates);
    p.store(param + first, live, wide);
    write_shadow(item.shadow, chunk.first + first, p, live);
    m.store(exp_avg + first, live, wide);
    v.store(exp_avg_sq + first, live, wide);
  }
}

__global__ void __launch_bounds__(kThreads) adamw_kernel(AdamWArgs args) {
  if (args.control->found_inf != 0.f) return;
  const float clip = args.control->clip;
  for (int64_t number = blockIdx.x; number < args.chunks; number += gridDim.x) {
    const Chunk chunk = find_chunk(args.items, args.count, number);
    const AdamWItem& item = args.items[chunk.tensor];
    const AdamWRates rates = float_rates(item, args, clip);
    switch (item.type) {
      case FloatType::kF32:
        update_chunk<float>(item, chunk, rates);
        break;
      case FloatType::kBF16:
        update_chunk<__nv_bfloat16>(item, chunk, rates);
        break;
      case FloatType::kF16:
        update_chunk<__half>(item, chunk, rates);
        break;
    }
  }
}

}  // namespace

void adamw(const AdamWArgs& args, Stream stream) {
  if (args.chunks == 0) return;
  launch("adamw launch", adamw_kernel, grid_size(args.chunks, 1), kThreads, stream, args);
}

}  // namespace lft
