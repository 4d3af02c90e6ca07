// Queries the NVIDIA driver without LibTorch, so that a GPU is found even if LibTorch cannot use
// it.
#pragma once
#include <string>
#include <vector>

namespace lft::train {

struct DriverDevice {
  std::string name;
  int capability = 0;  // 10 * major + minor
  double memory = 0;   // bytes
};

struct CudaDriver {
  bool found = false;
  std::string problem;  // why it is missing or unusable; empty: usable
  std::string version;  // of the kernel module, "580.65.06"; empty if unknown
  int cuda = 0;         // the newest supported CUDA, 1000 * major + 10 * minor
  std::vector<DriverDevice> devices;
};

CudaDriver probe_driver(const std::string& library = "libcuda.so.1");

/// "13.0" for 13000.
std::string cuda_text(int cuda);
/// 13000 for "13.0.88"; 0 if the text is not a version.
int cuda_number(const std::string& version);

}  // namespace lft::train
