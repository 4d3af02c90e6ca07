// A device that is no GPU, for tests: LibTorch's PrivateUse1 backend on host memory. Products and
// other ops of LibTorch's run as on a CPU, lft's kernels run their own sources (kernels/emulation),
// both at once. It refuses what a GPU refuses: host tensors among a device's, pinning what is not
// on the host, host pointers in a launch, waiting while a graph is captured; and under a
// MemoryGuard host code that follows a device pointer dies of it. It counts what costs time on a
// GPU. Linking it registers it: default_device() finds it. Not a model of speed, nor of work that
// runs later than it was launched.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>

namespace lft::test::stand_in {

inline c10::Device device() { return {c10::DeviceType::PrivateUse1, 0}; }

struct Counts {
  int64_t launches = 0;  // ops and kernels; a graph's replay is one
  int64_t host_reads =
      0;              // the host waited for values: copies to it, item(), sizes that depend on data
  int64_t waits = 0;  // for a stream, an event or the device, without reading
  int64_t pageable_copies = 0;  // to the device from memory that is not pinned: the host waits
  int64_t pinned_copies = 0;
  int64_t allocations = 0;         // of tensors
  int64_t device_allocations = 0;  // times that a pool had to grow: what takes long on a GPU
};
/// Since the start of the process.
Counts counts();
inline Counts operator-(Counts a, const Counts& b) {
  a.launches -= b.launches;
  a.host_reads -= b.host_reads;
  a.waits -= b.waits;
  a.pageable_copies -= b.pageable_copies;
  a.pinned_copies -= b.pinned_copies;
  a.allocations -= b.allocations;
  a.device_allocations -= b.device_allocations;
  return a;
}
/// While it lives, nobody can read or write the device's memory but the device's own code while it
/// runs. Two system calls a launch; not to be nested.
class MemoryGuard {
 public:
  MemoryGuard();
  ~MemoryGuard();
  MemoryGuard(const MemoryGuard&) = delete;
};

/// While it lives, the device has `bytes` beside what its pools hold.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;

 private:
  int64_t before_;
};

/// What captured passes did, all of them together.
Counts counts_in_captures();

}  // namespace lft::test::stand_in
