// NCCL, by a module that is opened where a GPU is: the program itself links nothing of CUDA's.
#pragma once
#include "src/dist/groups.h"

namespace lft::dist {

/// Whether tensors of this device talk by NCCL.
bool talks_by_nccl(at::Device device);

/// After LibTorch's CUDA library was opened. kResource where the module is not there or cannot be
/// opened.
GroupPtr open_nccl(const StorePtr& store, const Place& place, std::chrono::milliseconds timeout);

}  // namespace lft::dist
