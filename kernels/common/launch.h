// Checks and sizes for kernel launches. Every launcher ends with check_cuda(cudaGetLastError(),
// ...).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "kernels/common/error.h"

namespace lft {

inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const bool memory = status == cudaErrorMemoryAllocation;
  throw Error(memory ? ErrorKind::kResource : ErrorKind::kInternal,
              {.what = std::string(what) + " failed",
               .where = "CUDA",
               .found = cudaGetErrorString(status),
               .expected = {},
               .next = memory ? "lower train.batch_size, or free the GPU of other programs" : ""});
}

/// Blocks for `items`, limited; a grid-stride loop processes the rest.
inline unsigned grid_size(int64_t items, int64_t per_block, int64_t most = 4096) {
  const int64_t blocks = (items + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

}  // namespace lft
