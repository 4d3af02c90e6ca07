// What the parts of the stand-in device share: streams, counters, and the recording of launches.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "stand_in/device/device.h"

namespace lft::test::stand_in {

/// What to add to. Counted in captures too, while one is under way.
void count(int64_t Counts::*what, int64_t times = 1);

c10::StreamId current_stream();

/// The pool that allocations of the current stream come from.
int64_t current_pool();
/// Allocations of `stream` come from `pool` from here on; kDefaultPool ends it.
void use_pool(c10::StreamId stream, int64_t pool);

/// A capture: while one is under way, whatever is launched on its stream is recorded.
struct Recording {
  c10::StreamId stream = 0;
  std::vector<std::function<void()>> launches;
};
void start_recording(c10::StreamId stream);
Recording end_recording();
bool is_recording();

/// Adds to a capture that is under way what was run already.
void record(std::function<void()> launched);
/// Runs the launch with the device's memory open, and records it where a capture is under way.
void launch(std::function<void()> run);
/// Throws while a capture is under way, as CUDA does: "operation not permitted when stream is
/// capturing".
void refuse_in_capture(const std::string& what);

/// A tensor's memory as the CPU sees it; keeps nothing alive. To be read and written under Access.
at::Tensor as_cpu(const at::Tensor& tensor);
/// Whether the host memory is pinned.
bool is_pinned_address(const void* address);

}  // namespace lft::test::stand_in
