// Counts LibTorch's bytes on the CPU while it is installed, and can simulate a
// limited memory.
#pragma once
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace lft::test {

class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(this, /*priority=*/1);
  }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner_, /*priority=*/1); }

  /// The size of a block is stored before it.
  c10::DataPtr allocate(size_t bytes) override {
    const int64_t live = counts().live += static_cast<int64_t>(bytes);
    if (live > counts().limit) {
      counts().live -= static_cast<int64_t>(bytes);
      c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), 0, 0, at::kCPU);
      TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ",
                  bytes, " bytes.");
    }
    char* const block = static_cast<char*>(
        std::aligned_alloc(kHeader, (bytes + 2 * kHeader - 1) / kHeader * kHeader));
    std::memcpy(block, &bytes, sizeof bytes);
    for (int64_t peak = counts().peak;
         live > peak && !counts().peak.compare_exchange_weak(peak, live);) {
    }
    report(block + kHeader, static_cast<int64_t>(bytes));
    return {block + kHeader, block + kHeader, &release, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static int64_t live() { return counts().live; }
  static int64_t peak() { return counts().peak; }
  static void reset_peak() { counts().peak = counts().live.load(); }
  static void limit(int64_t bytes) { counts().limit = bytes; }

 private:
  static constexpr size_t kHeader = 64;
  struct Counts {
    std::atomic<int64_t> live{0}, peak{0}, limit{INT64_MAX};
  };
  static Counts& counts() {
    static Counts counts;
    return counts;
  }
  static void release(void* pointer) {
    char* const block = static_cast<char*>(pointer) - kHeader;
    size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof bytes);
    counts().live -= static_cast<int64_t>(bytes);
    report(pointer, -static_cast<int64_t>(bytes));
    std::free(block);
  }
  /// Same as LibTorch's own allocator.
  static void report(void* block, int64_t bytes) {
    if (c10::memoryProfilingEnabled())
      c10::reportMemoryUsageToProfiler(block, bytes, 0, 0, at::kCPU);
  }
  c10::Allocator* inner_;
};

}  // namespace lft::test
