// What LibTorch's tensors hold on a device during a run, and which allocation failed where. Other
// memory of the process is not included.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lft::train {

/// Where in a run an allocation is asked for.
struct AllocationPlace {
  std::string module;     // path of the innermost call; in the backward pass that of the node's
                          // forward; "" outside the model
  std::string node;       // the autograd node that runs; "" outside the backward pass
  bool backward = false;  // else forward, or outside the model
};

struct FailedAllocation {
  int64_t bytes = 0, live = 0, peak = 0;  // asked for; held by tensors; most so far
  double free = 0;                        // of the device, at that moment
  AllocationPlace place;
};

/// Gets every block of the device, from the thread that made the watch and from its backward
/// threads.
class AllocationSink {
 public:
  virtual ~AllocationSink() = default;
  virtual void allocated(const void* block, int64_t bytes) = 0;
  virtual void freed(const void* block, int64_t bytes) = 0;
};

/// Counts from its making on, on the thread that made it; one at a time.
class MemoryWatch {
 public:
  explicit MemoryWatch(at::Device device);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;

  int64_t live() const;
  int64_t peak() const;
  void reset_peak();
  /// The last allocation that failed; forgotten by forget_failed().
  std::optional<FailedAllocation> failed() const;
  void forget_failed();
  AllocationPlace place() const;  // of this thread, now
  /// Forgets the past: modules of past nodes, a failed allocation. On the thread that made
  /// the watch.
  void new_step();
  void set_sink(AllocationSink* sink);  // null: none. Must outlive the watch or be taken back

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Bytes a process can still get on the device: of memory, container and address space the least;
/// on a GPU what its allocator could give.
double free_memory_now(at::Device device);

}  // namespace lft::train
