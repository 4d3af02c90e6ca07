// The logistic function on the device.
#pragma once
#include <cuda_runtime_api.h>

namespace lft {

/// 1 / (1 + exp(-x)) within a few ulp; 0 and 1 far out. An exact division would cost as much as the
/// rest of an element's arithmetic and make kernels compute-bound.
__device__ inline float sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

}  // namespace lft
