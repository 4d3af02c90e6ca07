#include "src/train/machine/cuda_driver.h"

#include <dlfcn.h>

#include <cctype>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>

namespace lft::train {
namespace {

constexpr int kCapabilityMajor = 75,
              kCapabilityMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR

/// Calls a driver function, which returns 0 on success; nullopt: the driver lacks it.
template <class... Args>
std::optional<int> call(void* library, const char* name, Args... args) {
  const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library, name));
  return function == nullptr ? std::nullopt : std::optional(function(args...));
}

std::string error_text(void* library, int code) {
  const char* name = nullptr;
  if (call(library, "cuGetErrorString", code, &name) == 0 && name != nullptr) return name;
  return "error " + std::to_string(code);
}

DriverDevice device_at(void* library, int index) {
  DriverDevice device;
  int handle = 0, major = 0, minor = 0;
  if (call(library, "cuDeviceGet", &handle, index) != 0) return device;
  char name[256] = "";
  if (call(library, "cuDeviceGetName", &name[0], 255, handle) == 0) device.name = name;
  size_t memory = 0;
  if (call(library, "cuDeviceTotalMem_v2", &memory, handle) == 0)
    device.memory = static_cast<double>(memory);
  const char* const attribute = "cuDeviceGetAttribute";
  if (call(library, attribute, &major, kCapabilityMajor, handle) == 0 &&
      call(library, attribute, &minor, kCapabilityMinor, handle) == 0) {
    device.capability = 10 * major + minor;
  }
  return device;
}

/// The first word of the module's line that has the form of a version.
std::string module_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word[0])) && word.find('.') != std::string::npos)
      return word;
  }
  return "";
}

}  // namespace

CudaDriver probe_driver(const std::string& library_name) {
  CudaDriver driver;
  void* library = dlopen(library_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    driver.problem = why == nullptr ? library_name + " cannot be opened" : why;
    return driver;
  }
  driver.found = true;
  driver.version = module_version();
  if (dlsym(library, "cuInit") == nullptr || dlsym(library, "cuDeviceGetCount") == nullptr) {
    driver.problem = "it is not an NVIDIA driver";
    return driver;
  }
  if (const int code = *call(library, "cuInit", 0u); code != 0) {
    driver.problem = error_text(library, code);
    return driver;
  }
  call(library, "cuDriverGetVersion", &driver.cuda);
  int devices = 0;
  if (const int code = *call(library, "cuDeviceGetCount", &devices); code != 0)
    driver.problem = error_text(library, code);
  for (int i = 0; i < devices; ++i) driver.devices.push_back(device_at(library, i));
  return driver;
}

std::string cuda_text(int cuda) {
  return std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
}

int cuda_number(const std::string& version) {
  int major = 0, minor = 0;
  return std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2 ? 1000 * major + 10 * minor : 0;
}

}  // namespace lft::train
