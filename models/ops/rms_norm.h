// y = w * x / sqrt(mean(x^2) + eps) over the last dimension, in float32. Keeps x and one number a row for the backward pass.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft {

/// The result has the dtype of op_dtype(), the gradients the dtypes of x and w; a frozen w gets none.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace lft
