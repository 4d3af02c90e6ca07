#include "src/train/machine/peak_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <fstream>

#include "src/base/proc.h"

namespace lft::train {
namespace {

constexpr const char* kStatus = "/proc/self/status";

auto reserved(at::Device device) {
  return c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).reserved_bytes[0];
}

}  // namespace

PeakMemory::PeakMemory(at::Device device) : device_(device) {
  if (device.is_cpu()) {
    std::ofstream("/proc/self/clear_refs")
        << "5";  // resets VmHWM to VmRSS; without permission an earlier peak may appear
    start_ = line_bytes(kStatus, "RssAnon:") + line_bytes(kStatus, "RssShmem:");
  } else {
    c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
    start_ = static_cast<double>(reserved(device).current);
  }
}

double PeakMemory::growth() const {
  if (!device_.is_cpu()) return static_cast<double>(reserved(device_).peak) - start_;
  return line_bytes(kStatus, "VmHWM:") - line_bytes(kStatus, "RssFile:") - start_;
}

}  // namespace lft::train
