// Counts the memory of LibTorch's tensors on a device during a run, and records a failed
// allocation. Other memory of the process is not included.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lft::train {

/// The place in a run where memory is requested.
struct AllocationPlace {
  std::string module;     // path of the innermost call; in the backward pass that of the node;
                          // "" outside the model
  std::string node;       // the running autograd node; "" outside the backward pass
  bool backward = false;  // false: forward pass, or outside the model
};

struct FailedAllocation {
  int64_t bytes = 0, live = 0, peak = 0;  // requested; allocated by tensors; maximum
  double free = 0;                        // on the device, at that moment
  AllocationPlace place;
};

/// Receives every block of the device, from the
/// watch's thread and its backward threads.
class AllocationSink {
 public:
  virtual ~AllocationSink() = default;
  virtual void allocated(const void* block, int64_t bytes) = 0;
  virtual void freed(const void* block, int64_t bytes) = 0;
};

/// Counts from construction on, on the constructing thread; one at a time.
class MemoryWatch {
 public:
  explicit MemoryWatch(at::Device device);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;

  int64_t live() const;
  int64_t peak() const;
  void reset_peak();
  /// The last failed allocation; cleared by forget_failed().
  std::optional<FailedAllocation> failed() const;
  void forget_failed();
  AllocationPlace place() const;  // current place of this thread
  /// Clears modules of past nodes and a failed
  /// allocation. Call it on the constructing thread.
  void new_step();
  void set_sink(AllocationSink* sink);  // null: none. Must outlive the watch or be reset

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Bytes that a process can still allocate on the device: the minimum over memory, container and
/// address space; on a GPU what its allocator could provide.
double free_memory_now(at::Device device);

}  // namespace lft::train
