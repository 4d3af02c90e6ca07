// Controls how LibTorch's threads wait when other programs use the same cores.
#pragma once
#include <memory>

namespace lft::train {

/// LibTorch's OpenMP runtime (libgomp) lets a thread spin for up to 20 ms before it sleeps, which
/// is the fastest on an idle machine. Next to other programs the spinning thread uses up the core
/// that the thread it waits for would get, and a pass takes many times as long as its share of the
/// cores allows. While an object of this class exists, it measures how long each thread of the
/// process waits for a core. If one waits for more than a fifth of the time, threads spin for a few
/// microseconds only, until the cores are free again. The first object also asks the scheduler for
/// shorter time slices, so that a thread that wakes up gets a core sooner (Linux 6.12). Results do
/// not depend on any of this.
///
/// OMP_WAIT_POLICY and GOMP_SPINCOUNT take precedence: if either is set, nothing is measured and
/// nothing changes, and neither with a single OpenMP thread. With another OpenMP runtime than
/// libgomp, on a kernel without /proc/self/task/*/schedstat, and where no more threads can start,
/// spinning stays as it is.
class SharedCores {
 public:
  /// Construct it before LibTorch starts threads: they inherit the time slice.
  SharedCores();
  ~SharedCores();
  SharedCores(const SharedCores&) = delete;
  SharedCores& operator=(const SharedCores&) = delete;

  /// Whether threads currently spin for a few microseconds only.
  bool crowded() const;

 private:
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace lft::train
