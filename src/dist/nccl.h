// NCCL, and memory of GPUs that processes share, by a module that is opened where a GPU is: the
// program itself links nothing of CUDA's.
#pragma once
#include <ATen/core/Tensor.h>

#include "src/dist/groups.h"

namespace lft::dist {

/// Whether tensors of this device talk by NCCL.
bool talks_by_nccl(at::Device device);

/// After LibTorch's CUDA library was opened. kResource where the module is not there or cannot be
/// opened.
GroupPtr open_nccl(const StorePtr& store, const Place& place, std::chrono::milliseconds timeout);

/// By what another process of the machine finds a tensor on a GPU, and the tensor of `bytes` bytes
/// that it finds, on its own GPU as it sees it. kResource as above; errors of CUDA are LibTorch's.
std::string share_gpu_memory(const at::Tensor& tensor);
at::Tensor open_gpu_memory(const std::string& handle, int64_t bytes, at::TensorOptions options);

}  // namespace lft::dist
