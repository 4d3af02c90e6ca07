// NCCL and GPU memory shared between processes, in a module that is opened only on a GPU: the
// program itself does not link CUDA.
#pragma once
#include <ATen/core/Tensor.h>

#include "src/dist/groups.h"

namespace lft::dist {

/// Whether tensors of this device are exchanged by NCCL.
bool talks_by_nccl(at::Device device);

/// Called after LibTorch's CUDA library was opened. kResource if the module is missing or cannot be
/// opened.
GroupPtr open_nccl(const StorePtr& store, const Place& place, std::chrono::milliseconds timeout);

/// A handle with which another process of the machine opens a GPU tensor, and the tensor of `bytes`
/// bytes for a handle. kResource as above; CUDA errors are LibTorch's.
std::string share_gpu_memory(const at::Tensor& tensor);
at::Tensor open_gpu_memory(const std::string& handle, int64_t bytes, at::TensorOptions options);

}  // namespace lft::dist
