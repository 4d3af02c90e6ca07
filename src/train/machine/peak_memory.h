// How much memory a phase took at most, as the system or LibTorch's device allocator counted it.
#pragma once
#include <c10/core/Device.h>

namespace lft::train {

/// Growth since it was made, in bytes: on a GPU of what LibTorch's allocator has reserved, on a CPU
/// of the process's resident memory without pages of files, such as the libraries' code, which the
/// system can take back.
class PeakMemory {
 public:
  explicit PeakMemory(at::Device device);
  double growth() const;

 private:
  at::Device device_;
  double start_ = 0;
};

}  // namespace lft::train
