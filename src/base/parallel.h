// A loop over many threads that ends well whatever one of them throws.
#pragma once
#include <cstdint>
#include <functional>

namespace lft {

/// Processor cores that this process may use; at least 1.
int64_t all_cores();

/// task(0) ... task(count - 1), each once, on at most so many threads, this one among them; fewer
/// where no more can be made. After an exception no further task is begun, and the first one is
/// thrown when all threads are done.
void parallel_for(int64_t count, int64_t threads, const std::function<void(int64_t)>& task);

}  // namespace lft
