// AdamW over many tensors at once: the torch binding of kernels/adamw.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "models/ops/update/grad_stats.h"

namespace lft::ops {

/// A low-precision copy that is written with the parameter: dtype(param * scale), the product in
/// float32. copy: contiguous bfloat16 or float16 with the size of param; undefined: none.
struct ParamCopy {
  at::Tensor copy;
  double scale = 1;
};

/// One tensor: param, exp_avg, exp_avg_sq are contiguous float32 of one size; grad has that size
/// and is float32, bfloat16 or float16.
struct AdamWTensor {
  at::Tensor param, grad, exp_avg, exp_avg_sq;
  double lr = 0;
  int64_t t = 1;  // number of this update, from 1
  ParamCopy copy = {};
};

struct AdamWOptions {
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;  // decoupled, on every tensor
};

/// The update of torch.optim.AdamW with g * clip; nothing changes if the check found a non-finite
/// value. Both are read on the device, so the host is not blocked. On a CPU the result is bitwise
/// the same for any number of threads.
void adamw_(const std::vector<AdamWTensor>& tensors, const AdamWOptions& options,
            const GradVerdict& verdict);

}  // namespace lft::ops
