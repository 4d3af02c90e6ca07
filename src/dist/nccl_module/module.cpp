#include "src/dist/nccl_module/module.h"

#define USE_C10D_NCCL  // as LibTorch was compiled
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

extern "C" c10::intrusive_ptr<c10d::Backend> lft_open_nccl(c10::intrusive_ptr<c10d::Store> store,
                                                           int rank, int size,
                                                           std::chrono::milliseconds timeout) {
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), rank, size, options);
}
