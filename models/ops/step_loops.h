// The CPU's loops of the optimizer step on raw pointers: one pass over memory, compiled for AVX-512, AVX2 and baseline. No threads here:
// callers split into chunks (kernels/common/chunks.h).
#pragma once
#include "kernels/adamw/adamw.h"

namespace lft::loops {

/// g = type(g * inv_scale), not written when inv_scale is 1; the sum of squares of what is stored, in double.
double unscale_squares(FloatType type, void* g, int64_t n, float inv_scale);

/// adamw_element on n elements. All arrays are disjoint.
void adamw(float* param, FloatType type, const void* grad, float* exp_avg, float* exp_avg_sq, int64_t n, const AdamWRates& rates);

}  // namespace lft::loops
