// x / (1 + exp(-1.702 x)), the activation of CLIP's towers (Hendrycks and Gimpel 2016, "Gaussian
// Error Linear Units"), and its gradient, recomputed from x.
#pragma once
#include "kernels/common/float_type.h"

namespace lft {

constexpr float kQuickGelu = 1.702f;

/// y = x s with s = 1 / (1 + exp(-1.702 x)). Arrays [n] of one type; y may be x.
void quick_gelu_ref(FloatType type, const void* x, void* y, int64_t n);
void quick_gelu(FloatType type, const void* x, void* y, int64_t n, Stream stream);

/// dx = dy s (1 + 1.702 x (1 - s)). dx may be either of the inputs.
void quick_gelu_backward_ref(FloatType type, const void* dy, const void* x, void* dx, int64_t n);
void quick_gelu_backward(FloatType type, const void* dy, const void* x, void* dx, int64_t n,
                         Stream stream);

// References compute in double and round once; kernels in float32, asynchronous, bit-reproducible,
// only in builds with CUDA. Launch failures are kInternal.
}  // namespace lft
