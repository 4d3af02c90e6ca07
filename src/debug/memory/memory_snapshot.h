// The allocations of a GPU as PyTorch's memory_viz (pytorch.org/memory_viz) opens them. LibTorch's
// CUDA library is asked at run time.
#pragma once
#include <string>

namespace lft::debug {

/// Records from its making on. Nothing where LibTorch's CUDA library is not open.
class CudaSnapshot {
 public:
  CudaSnapshot();
  ~CudaSnapshot();
  CudaSnapshot(const CudaSnapshot&) = delete;
  /// The pickled snapshot; "" where there is none.
  std::string pickled() const;
};

}  // namespace lft::debug
