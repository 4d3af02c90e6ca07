#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/launch.cuh"
#include "kernels/common/philox.h"
#include "kernels/dropout/dropout.h"

namespace lft {
namespace {

constexpr int kThreads = 256;

// One thread owns one Philox block, that is 8 elements; nothing is shared, so the result does not depend on the launch shape.
template <class T>
__global__ void dropout_kernel(const T* x, T* y, int64_t n, DropoutArgs args) {
  const int64_t blocks = (n + 7) / 8;
  const uint64_t stream = args.stream_at != nullptr ? *args.stream_at : args.stream;
  for (int64_t b = int64_t(blockIdx.x) * kThreads + threadIdx.x; b < blocks; b += int64_t(gridDim.x) * kThreads) {
    const PhiloxBlock bits = philox_block(args.seed, stream, uint64_t(b));
    const int64_t first = b * 8;
    const int count = n - first < 8 ? int(n - first) : 8;
    for (int i = 0; i < count; ++i) {
      const uint32_t draw = (bits.word[i / 2] >> (16 * (i % 2))) & 0xFFFFu;
      const float kept = draw >= args.threshold ? __fmul_rn(float(x[first + i]), args.scale) : 0.f;
      y[first + i] = T(args.add ? __fadd_rn(float(y[first + i]), kept) : kept);
    }
  }
}

template <class T>
void run(const void* x, void* y, int64_t n, const DropoutArgs& args, Stream stream) {
  launch("dropout launch", dropout_kernel<T>, grid_size((n + 7) / 8, kThreads), kThreads, stream, static_cast<const T*>(x),
         static_cast<T*>(y), n, args);
}

}  // namespace

void dropout(FloatType type, const void* x, void* y, int64_t n, const DropoutArgs& args, Stream stream) {
  if (n == 0) return;
  switch (type) {
    case FloatType::kF32:
      return run<float>(x, y, n, args, stream);
    case FloatType::kBF16:
      return run<__nv_bfloat16>(x, y, n, args, stream);
    case FloatType::kF16:
      return run<__half>(x, y, n, args, stream);
  }
}

}  // namespace lft
