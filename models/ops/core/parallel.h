// Splits a range over LibTorch's intra-op threads.
#pragma once
#include <cstdint>
#include <functional>

namespace lft::ops {

/// Runs body(begin, end) over disjoint pieces of [0, n), each of at least `grain` (but the last).
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

/// ATen operations of this thread stay in it, these too: a worker that starts a team of its own
/// takes the cores from the others. The setting is the thread's; at::set_num_threads would change
/// the whole process.
void stay_single_threaded();

}  // namespace lft::ops
