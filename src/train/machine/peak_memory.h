// Peak memory of a phase, as counted by the system or LibTorch's device allocator.
#pragma once
#include <c10/core/Device.h>

namespace lft::train {

/// Growth in bytes since construction: on a GPU the reserved memory of LibTorch's allocator, on a
/// CPU the process's resident memory without file-backed pages, such as library code, which the
/// system can reclaim.
class PeakMemory {
 public:
  explicit PeakMemory(at::Device device);
  double growth() const;

 private:
  at::Device device_;
  double start_ = 0;
};

}  // namespace lft::train
