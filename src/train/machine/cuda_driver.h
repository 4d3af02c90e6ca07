// Queries the NVIDIA driver without LibTorch, so that a GPU is found even where LibTorch cannot use
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
  std::string problem;  // why it is not found or cannot be used; empty: it can
  std::string version;  // of the kernel module, "580.65.06"; empty where it does not tell
  int cuda = 0;         // the newest CUDA it runs, 1000 * major + 10 * minor
  std::vector<DriverDevice> devices;
};

CudaDriver probe_driver(const std::string& library = "libcuda.so.1");

/// "13.0" of 13000.
std::string cuda_text(int cuda);
/// 13000 of "13.0.88"; 0 of what is no version.
int cuda_number(const std::string& version);

}  // namespace lft::train
