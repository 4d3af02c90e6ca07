// Why a GPU is not used.
#pragma once
#include <string>

#include "src/train/machine/cuda_driver.h"

namespace lft::debug {

/// The requirements for computing on a GPU with lft's kernels.
struct GpuAccess {
  train::CudaDriver driver;
  std::string visible;  // CUDA_VISIBLE_DEVICES; empty if it is not set
  std::string
      toolkit;  // version that compiled lft's kernels, "13.0.88"; empty: this build has none
  std::string architectures;      // CMake's list that they were compiled for: "75-real,80-real,90"
  bool has_cuda_library = false;  // next to the LibTorch in use
  std::string unused;             // unused_gpu_reason()
  bool used = false;              // default_device() is a GPU
};

/// The first requirement that is not met, as a sentence; empty: none.
std::string gpu_hindrance(const GpuAccess& access);

/// Whether code compiled for these architectures runs on a GPU of this compute capability (10 *
/// major + minor): machine code runs on the same major version from its minor version on, and PTX
/// (an entry without "-real") on all later ones.
bool runs_on(const std::string& architectures, int capability);

}  // namespace lft::debug
