// The logistic function on the device.
#pragma once
#include <cuda_runtime_api.h>

namespace lft {

/// 1 / (1 + exp(-x)), within a few units; 0 and 1 far out. The exact division would cost as much as
/// the rest of an element's arithmetic, and a kernel its memory's speed.
__device__ inline float sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

}  // namespace lft
