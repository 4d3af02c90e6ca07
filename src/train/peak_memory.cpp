#include "src/train/peak_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <fstream>
#include <sstream>
#include <string>

namespace lft {
namespace {

/// A "Key:  123 kB" line of this process's status, in bytes; 0 where there is none.
double status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    std::istringstream number(line.substr(key.size()));
    double kilobytes = 0;
    number >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

auto reserved(at::Device device) { return c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).reserved_bytes[0]; }

}  // namespace

PeakMemory::PeakMemory(at::Device device) : device_(device) {
  if (device.is_cpu()) {
    std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM is now VmRSS; where that is not allowed an earlier peak may show
    start_ = status_bytes("VmRSS:");
  } else {
    c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
    start_ = static_cast<double>(reserved(device).current);
  }
}

double PeakMemory::growth() const {
  return (device_.is_cpu() ? status_bytes("VmHWM:") : static_cast<double>(reserved(device_).peak)) - start_;
}

}  // namespace lft
