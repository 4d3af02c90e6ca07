// From host memory to where a model is.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// A tensor of the CPU on `device`, in its current stream's order; nobody waits. (Out of memory
/// that is not pinned LibTorch's own copy waits for all that was launched before it.) One that is
/// there already stays as it is.
at::Tensor copy_to_device(const at::Tensor& host, at::Device device);

}  // namespace lft::ops
