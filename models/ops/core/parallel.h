// Splits a range over LibTorch's intra-op threads.
#pragma once
#include <cstdint>
#include <functional>

namespace lft::ops {

/// Runs body(begin, end) over disjoint parts of [0, n), each with at least `grain` elements (except
/// for the last).
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

/// Limits the calling thread to one thread for these loops and ATen operations: a worker that
/// starts its own team of threads takes cores from the others. The setting is per thread;
/// at::set_num_threads would change the whole process.
void stay_single_threaded();

}  // namespace lft::ops
