#include "src/train/memory/memory_watch.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>

#include "models/base/call.h"
#include "models/base/path_log.h"
#include "src/base/proc.h"

namespace lft::train {
namespace {

double first_number(const std::string& path) {
  double number = 0;
  std::ifstream(path) >> number;  // "max" keeps 0
  return number;
}

/// The node of the forward pass that a backward thread is processing.
AllocationPlace place_now(const PathLog& log) {
  AllocationPlace place{.module = current_module_path(), .node = {}};
  if (const std::shared_ptr<torch::autograd::Node> node = torch::autograd::get_current_node()) {
    place.backward = true;
    place.node = node->name();
    if (place.module.empty()) place.module = log.path_of(node->sequence_nr());
  }
  return place;
}

}  // namespace

struct MemoryWatch::State : c10::MemoryReportingInfoBase {
  explicit State(at::Device on) : device(on) {}

  void reportMemoryUsage(void* block, int64_t bytes, size_t, size_t, at::Device on) override {
    if (on.type() != device.type()) return;
    const int64_t now = live += bytes;
    for (int64_t most = peak; now > most && !peak.compare_exchange_weak(most, now);) {
    }
    AllocationSink* const to = sink;
    if (to == nullptr) return;
    if (bytes > 0) {
      to->allocated(block, bytes);
    } else {
      to->freed(block, -bytes);
    }
  }
  void reportOutOfMemory(int64_t bytes, size_t, size_t, at::Device on) override {
    if (on.type() != device.type()) return;
    const FailedAllocation found{.bytes = bytes,
                                 .live = live,
                                 .peak = peak,
                                 .free = free_memory_now(device),
                                 .place = place_now(log)};
    const std::lock_guard lock(mutex);
    failed = found;
  }
  bool memoryProfilingEnabled() const override { return true; }

  const at::Device device;
  PathLog log;
  std::atomic<int64_t> live = 0, peak = 0;
  std::atomic<AllocationSink*> sink = nullptr;
  std::mutex mutex;
  std::optional<FailedAllocation> failed;
  std::optional<c10::DebugInfoGuard> installed;
};

MemoryWatch::MemoryWatch(at::Device device) : state_(std::make_shared<State>(device)) {
  state_->installed.emplace(c10::DebugInfoKind::PROFILER_STATE, state_);
}
MemoryWatch::~MemoryWatch() { state_->installed.reset(); }

int64_t MemoryWatch::live() const { return state_->live; }
int64_t MemoryWatch::peak() const { return state_->peak; }
void MemoryWatch::reset_peak() { state_->peak = state_->live.load(); }

std::optional<FailedAllocation> MemoryWatch::failed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failed;
}

void MemoryWatch::forget_failed() {
  const std::lock_guard lock(state_->mutex);
  state_->failed.reset();
}

AllocationPlace MemoryWatch::place() const { return place_now(state_->log); }
void MemoryWatch::new_step() {
  state_->log.clear();
  forget_failed();
}
void MemoryWatch::set_sink(AllocationSink* sink) { state_->sink = sink; }

double free_memory_now(at::Device device) {
  if (!device.is_cpu()) {
    c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
    const auto stats = allocator->getDeviceStats(device.index());
    const auto cached = stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
    return static_cast<double>(allocator->getMemoryInfo(device.index()).first) +
           static_cast<double>(cached);
  }
  double free = line_bytes("/proc/meminfo", "MemAvailable:");
  if (const double limit = first_number("/sys/fs/cgroup/memory.max"); limit > 0) {
    free = std::min(free, std::max(0.0, limit - first_number("/sys/fs/cgroup/memory.current")));
  }
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    free = std::min(free, std::max(0.0, static_cast<double>(space.rlim_cur) -
                                            line_bytes("/proc/self/status", "VmSize:")));
  }
  return free;
}

}  // namespace lft::train
