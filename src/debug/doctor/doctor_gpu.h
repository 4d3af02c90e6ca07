// Why a GPU is not used.
#pragma once
#include <string>

#include "src/train/machine/cuda_driver.h"

namespace lft::debug {

/// What has to be there, and to fit together, before lft computes on a GPU with its own kernels.
struct GpuAccess {
  train::CudaDriver driver;
  std::string visible;  // CUDA_VISIBLE_DEVICES; empty where it is not set
  std::string toolkit;  // that compiled lft's kernels, "13.0.88"; empty: none are in this build
  std::string architectures;      // they were compiled for, as CMake has them: "75-real,80-real,90"
  bool has_cuda_library = false;  // beside the LibTorch in use
  std::string unused;             // unused_gpu_reason()
  bool used = false;              // default_device() is a GPU
};

/// The first thing that is missing or does not fit, in a sentence; empty: nothing.
std::string gpu_hindrance(const GpuAccess& access);

/// Whether code compiled for these architectures runs on a GPU of this compute capability, 10 *
/// major
/// + minor: machine code on its own major version from its minor version on, and the PTX of one
/// that is not "-real" on all later ones.
bool runs_on(const std::string& architectures, int capability);

}  // namespace lft::debug
