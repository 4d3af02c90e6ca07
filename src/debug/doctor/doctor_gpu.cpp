#include "src/debug/doctor/doctor_gpu.h"

#include <sstream>

#include "src/debug/doctor/doctor.h"

namespace lft::debug {
namespace {

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

/// For the driver itself; empty: it has a device.
std::string driver_hindrance(const GpuAccess& access) {
  const train::CudaDriver& driver = access.driver;
  if (!driver.found) return "there is no NVIDIA driver: " + driver.problem;
  if (!driver.problem.empty()) return "the NVIDIA driver does not start: " + driver.problem;
  if (!driver.devices.empty()) return "";
  return "the NVIDIA driver finds no device" +
         (access.visible.empty() ? "" : ", with CUDA_VISIBLE_DEVICES=" + access.visible);
}

std::string library_hindrance(const GpuAccess& access) {
  if (access.used) return "";
  // The loader's message has priority: an existing library may fail to open because of its
  // dependencies.
  if (!access.has_cuda_library)
    return "this LibTorch is one without CUDA" +
           (access.unused.empty() ? "" : ": " + access.unused);
  return access.unused.empty() ? "LibTorch does not see it" : access.unused;
}

std::string kernel_hindrance(const GpuAccess& access) {
  if (access.toolkit.empty()) {
    return "this build has no CUDA kernels: configure it where nvcc is found, without LFT_CUDA=OFF";
  }
  const int capability = access.driver.devices.front().capability;
  if (runs_on(access.architectures, capability)) return "";
  return "it has compute capability " + capability_text(capability) +
         ", and the kernels of this build are for " + access.architectures +
         ": set CMAKE_CUDA_ARCHITECTURES";
}

}  // namespace

bool runs_on(const std::string& architectures, int capability) {
  std::istringstream list(architectures);
  for (std::string item; std::getline(list, item, ',');) {
    std::istringstream words(item);
    int compiled = 0;
    std::string kind;
    words >> compiled >> kind;  // "90", "90-real", "90-virtual"; "90a" runs only on 9.0
    if (kind.starts_with("a")) {
      if (compiled == capability) return true;
      continue;
    }
    const bool machine = kind != "-virtual", ptx = kind != "-real";
    if (machine && compiled / 10 == capability / 10 && compiled <= capability) return true;
    if (ptx && compiled <= capability) return true;
  }
  return false;
}

std::string gpu_hindrance(const GpuAccess& access) {
  if (std::string of_driver = driver_hindrance(access); !of_driver.empty()) return of_driver;
  const int toolkit = train::cuda_number(access.toolkit);
  if (access.driver.cuda / 1000 < toolkit / 1000) {
    return "a GPU is here, but its driver runs CUDA up to " + train::cuda_text(access.driver.cuda) +
           " and lft was built with " + train::cuda_text(toolkit);
  }
  std::string why = library_hindrance(access);
  if (why.empty()) why = kernel_hindrance(access);
  return why.empty() ? "" : "a GPU is here, but " + why;
}

}  // namespace lft::debug
