#include "src/dist/nccl_module/module.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/env.h>

#define USE_C10D_NCCL  // as LibTorch was compiled
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

extern "C" c10::intrusive_ptr<c10d::Backend> lft_open_nccl(c10::intrusive_ptr<c10d::Store> store,
                                                           int rank, int size,
                                                           std::chrono::milliseconds timeout) {
  // By default LibTorch's watchdog ends the process after a timeout. Ranks waits for each transfer
  // itself, with a timeout, and then names the lost rank.
  c10::utils::set_env("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0");
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), rank, size, options);
}

extern "C" void lft_share_gpu_memory(void* memory, lft::dist::GpuHandle* handle) {
  auto [offset, text] = c10::cuda::CUDACachingAllocator::shareIpcHandle(memory);
  *handle = {static_cast<int64_t>(offset), std::move(text)};
}

extern "C" void lft_open_gpu_memory(const lft::dist::GpuHandle& handle,
                                    std::shared_ptr<void>* memory) {
  const std::shared_ptr<void> whole = c10::cuda::CUDACachingAllocator::getIpcDevPtr(handle.handle);
  *memory = {whole, static_cast<char*>(whole.get()) + handle.offset};
}
