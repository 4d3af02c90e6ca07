#include "src/train/check_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "src/base/errors.h"

namespace lft {
namespace {

/// A "Key:  123 kB" line of a file under /proc, in bytes; 0 where there is none.
double proc_bytes(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    std::istringstream number(line.substr(key.size()));
    double kilobytes = 0;
    number >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

/// The memory limit of a container; 0 where there is none.
double container_limit() {
  double bytes = 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> bytes;  // "max" leaves 0
  return bytes;
}

double free_memory(at::Device device) {
  if (!device.is_cpu()) {
    c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
    const auto held = allocator->getDeviceStats(device.index()).reserved_bytes[0].current;
    return static_cast<double>(allocator->getMemoryInfo(device.index()).first) + static_cast<double>(held);
  }
  const double machine = proc_bytes("/proc/meminfo", "MemAvailable:") + proc_bytes("/proc/self/status", "VmRSS:");
  const double limit = container_limit();
  return limit > 0 ? std::min(machine, limit) : machine;
}

}  // namespace

PeakMemory::PeakMemory(at::Device device) : device_(device) {
  if (device.is_cpu()) {
    std::ofstream("/proc/self/clear_refs") << "5";  // resets VmHWM; where that is not allowed the peak is the process's own
  } else {
    c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
  }
}

double PeakMemory::bytes() const {
  if (device_.is_cpu()) return proc_bytes("/proc/self/status", "VmHWM:");
  return static_cast<double>(c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index()).reserved_bytes[0].peak);
}

MemoryPlan plan_memory(torch::nn::Module& model, const std::vector<Trainable>& trainables, at::Device device, double peak) {
  MemoryPlan plan;
  for (const at::Tensor& parameter : model.parameters()) plan.frozen += static_cast<double>(parameter.nbytes());
  for (const Trainable& trainable : trainables) plan.trainables += static_cast<double>(trainable.tensor.nbytes());
  plan.frozen -= plan.trainables;
  plan.gradients = plan.trainables;
  plan.moments = 2 * plan.trainables;
  plan.peak = peak + (device.is_cpu() ? plan.moments : 0);
  plan.free = free_memory(device);
  return plan;
}

std::vector<std::string> describe_memory(const MemoryPlan& plan, size_t rows, size_t tokens) {
  return {"memory     frozen weights " + format_bytes(plan.frozen) + ", trainables " + format_bytes(plan.trainables) + ", gradients " +
              format_bytes(plan.gradients) + ", Adam's moments " + format_bytes(plan.moments),
          "           peak " + format_bytes(plan.peak) + ", measured on a micro-batch of " + std::to_string(rows) + " rows of up to " +
              std::to_string(tokens) + " tokens; " + format_bytes(plan.free) + " free for it"};
}

}  // namespace lft
