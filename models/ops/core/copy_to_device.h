// Copies from host memory to the device of a model.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// Copies a CPU tensor to `device` in the order of its current stream; does not block the host.
/// (From memory that is not pinned, the copy of LibTorch waits for all earlier kernels.) A tensor
/// that is already there is returned unchanged.
at::Tensor copy_to_device(const at::Tensor& host, at::Device device);

}  // namespace lft::ops
