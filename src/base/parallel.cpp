#include "src/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace lft {

int64_t all_cores() { return std::max<int64_t>(1, std::thread::hardware_concurrency()); }

void parallel_for(int64_t count, int64_t threads, const std::function<void(int64_t)>& task) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto fail = [&] {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
    next = count;
  };
  const auto work = [&] {
    try {
      for (int64_t i; (i = next++) < count;) task(i);
    } catch (...) {
      fail();
    }
  };
  std::vector<std::thread> others;
  try {
    for (int64_t i = 1; i < std::min(threads, count); ++i) others.emplace_back(work);
  } catch (...) {
    fail();  // no memory for a thread: the running ones must be joined
  }
  work();
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lft
