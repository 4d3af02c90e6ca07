// A parallel loop that joins all threads if one of them throws.
#pragma once
#include <cstdint>
#include <functional>

namespace lft {

/// Number of processor cores that this process may use, at least 1.
int64_t all_cores();

/// Runs task(0) ... task(count - 1) on at most `threads` threads including this one, or fewer if no
/// more can be created. After an exception no further task starts, and the first exception is
/// thrown when all threads are done.
void parallel_for(int64_t count, int64_t threads, const std::function<void(int64_t)>& task);

}  // namespace lft
