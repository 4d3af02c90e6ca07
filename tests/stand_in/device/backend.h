// Shared parts of the simulated device: streams, counters, and the recording of launches.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "stand_in/device/device.h"

namespace lft::test::stand_in {

/// The counters to add to. Captured work is counted too.
void count(int64_t Counts::*what, int64_t times = 1);

c10::StreamId current_stream();

/// The pool used by allocations of the current stream.
int64_t current_pool();
/// Allocations of `stream` use `pool` from now on; kDefaultPool ends this.
void use_pool(c10::StreamId stream, int64_t pool);

/// A capture: during it, everything launched on its stream is recorded.
struct Recording {
  c10::StreamId stream = 0;
  std::vector<std::function<void()>> launches = {};
  std::string fault = {};  // of a call that cannot be refused where it is made
};
void start_recording(c10::StreamId stream);
Recording end_recording();
/// Makes an active capture of this thread's stream fail at its end: LibTorch's allocator would
/// record an event in the capturing stream and query it later, which ends all graphs.
void spoil_recording(const std::string& what);
bool is_recording();

/// Adds work that has already run to an active capture.
void record(std::function<void()> launched);
/// Runs the launch with access to device memory, and records it during a capture.
void launch(std::function<void()> run);
/// The same for a kernel, which runs on the thread's current device.
void launch_kernel(std::function<void()> run);
/// Throws during a capture, as CUDA does: "operation not permitted when stream is
/// capturing".
void refuse_in_capture(const std::string& what);

/// CPU view of a tensor's memory; owns nothing. Read and write it only under Access.
at::Tensor as_cpu(const at::Tensor& tensor);
/// Adds the tensors' elements to Counts::bytes.
void count_bytes(const std::vector<at::Tensor>& used);
/// Whether the host memory is pinned.
bool is_pinned_address(const void* address);

}  // namespace lft::test::stand_in
