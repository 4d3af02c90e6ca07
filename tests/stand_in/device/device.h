// A simulated device for tests: LibTorch's PrivateUse1 backend on host memory. LibTorch's
// ops run as on a CPU, lft's kernels run their own sources (kernels/emulation),
// both synchronously. It refuses what a GPU refuses: host tensors among device tensors, pinning
// memory that is not on the host, host pointers in a launch, waiting during a graph capture; and
// under a MemoryGuard host code that dereferences a device pointer crashes. It counts operations
// that are slow on a GPU. Linking it registers it: default_device() finds it. It models neither
// speed nor asynchronous execution.
//
// With LFT_STAND_IN_INDEX=N in the environment the machine has N + 1 such devices, of which this
// process is to use the last one: the process aborts where CUDA would create a context on another
// one, and where a launch's current device is another one.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>

namespace lft::test::stand_in {

/// The device that this process uses.
c10::Device device();

struct Counts {
  int64_t launches = 0;    // ops and kernels; a graph's replay counts as one
  int64_t bytes = 0;       // of the tensors that these read or write, each as a whole
  int64_t host_reads = 0;  // waits for values: copies to the host, item(), data-dependent sizes
  int64_t waits = 0;       // waits for a stream, an event or the device, without reading
  int64_t pageable_copies = 0;  // copies from unpinned host memory: the host waits
  int64_t pinned_copies = 0;
  int64_t attended_sequences = 0;  // of packed attention: a GPU launches blocks for each
  int64_t sorted_writes = 0;       // index_put_ under deterministic algorithms: sorts its places
  int64_t allocations = 0;         // tensor allocations
  int64_t device_allocations = 0;  // pool growths, which are slow on a GPU
};
/// Counts since the start of the process.
Counts counts();
inline Counts operator-(Counts a, const Counts& b) {
  a.launches -= b.launches;
  a.bytes -= b.bytes;
  a.host_reads -= b.host_reads;
  a.waits -= b.waits;
  a.pageable_copies -= b.pageable_copies;
  a.pinned_copies -= b.pinned_copies;
  a.attended_sequences -= b.attended_sequences;
  a.sorted_writes -= b.sorted_writes;
  a.allocations -= b.allocations;
  a.device_allocations -= b.device_allocations;
  return a;
}
/// During its lifetime only the device's own code can read or write device memory, while it
/// runs. Two system calls per launch; must not be nested.
class MemoryGuard {
 public:
  MemoryGuard();
  ~MemoryGuard();
  MemoryGuard(const MemoryGuard&) = delete;
};

/// During its lifetime the device has `bytes` in addition to its pools.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;

 private:
  int64_t before_;
};

/// The counts of all captured passes together.
Counts counts_in_captures();

}  // namespace lft::test::stand_in
