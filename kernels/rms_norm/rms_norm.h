// RMSNorm (Zhang and Sennrich 2019) over rows, with an optional residual sum before it in the same
// pass.
#pragma once
#include "kernels/common/float_type.h"

namespace lft {

/// Rows of `cols` elements, without gaps. x, delta, sum and dx have x_type; y and dy have y_type; w
/// [cols] has w_type; rstd [rows] is float32. FP16 is only combined with FP16; FP32 and BF16 in any
/// mixture; any w_type.
struct RmsNormArgs {
  int64_t rows = 0, cols = 0;
  float eps = 1e-5f;
  FloatType x_type = FloatType::kF32, y_type = FloatType::kF32, w_type = FloatType::kF32;
  const void *x = nullptr, *w = nullptr;
  float* rstd = nullptr;
};

/// With s = x, or x + delta rounded to x_type and stored in `sum` if delta is given:
///   rstd = 1 / sqrt(mean(s^2) + eps),  y = w * s * rstd
void rms_norm_ref(const RmsNormArgs& args, const void* delta, void* sum, void* y);
void rms_norm(const RmsNormArgs& args, const void* delta, void* sum, void* y, Stream stream);

/// args.x is the normalised input:  dx = [dsum +] rstd * (w dy - x rstd^2 mean(w dy x)). dsum
/// (x_type, may be null, may be dx): the gradient of the sum from its other uses.
void rms_norm_backward_ref(const RmsNormArgs& args, const void* dy, const void* dsum, void* dx);
void rms_norm_backward(const RmsNormArgs& args, const void* dy, const void* dsum, void* dx,
                       Stream stream);

// References compute in double and round once; kernels in float32, asynchronous, bit-reproducible,
// only in builds with CUDA. Launch failures are kInternal.
}  // namespace lft
