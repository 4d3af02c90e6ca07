// AdamW with 8-bit moments over many tensors at once: the torch binding of kernels/adamw8.
#pragma once
#include "models/ops/update/adamw.h"

namespace lft::ops {

/// One tensor: param is contiguous float32; exp_avg, exp_avg_sq are contiguous uint8 of its size;
/// the absmax are contiguous float32 [moment_blocks(size)]; grad has that size and is float32,
/// bfloat16 or float16. Zeros in all four are moments of zero.
struct AdamW8Tensor {
  at::Tensor param, grad, exp_avg, exp_avg_sq, exp_avg_absmax, exp_avg_sq_absmax;
  double lr = 0;
  int64_t t = 1;  // number of this update, from 1
  ParamCopy copy = {};
};
int64_t moment_blocks(int64_t elements);

/// adamw_() with each moment dequantized and quantized again, in blocks of 256 elements with one
/// scale. Bitwise the same for any number of threads.
void adamw8_(const std::vector<AdamW8Tensor>& tensors, const AdamWOptions& options,
             const GradVerdict& verdict);

/// Dequantizes codes: float32 of their shape and device. `is_signed`: codes of exp_avg, not of
/// exp_avg_sq.
at::Tensor decode_moment(const at::Tensor& codes, const at::Tensor& absmax, bool is_signed);

}  // namespace lft::ops
