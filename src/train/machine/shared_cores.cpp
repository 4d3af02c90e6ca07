#include "src/train/machine/shared_cores.h"

#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace lft::train {

namespace {

constexpr std::chrono::milliseconds kLookEvery{50};
constexpr double kCrowded = 0.2;  // of the time that a thread waits for a core
constexpr double kCalm = 0.1;
constexpr int kCalmLooks = 10;            // in a row, until threads spin again
constexpr uint64_t kSliceNs = 1'000'000;  // a third of the scheduler's own

/// Nanoseconds that each thread of this process has waited for a core so far (the second number of
/// Linux's schedstat), by thread id; empty if the kernel does not count them.
std::map<std::string, int64_t> waited_ns() {
  std::map<std::string, int64_t> waited;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return waited;
  while (const dirent* task = readdir(tasks)) {
    std::ifstream file("/proc/self/task/" + std::string(task->d_name) + "/schedstat");
    int64_t ran = 0, delay = 0;
    if (file >> ran >> delay) waited[task->d_name] = delay;
  }
  closedir(tasks);
  return waited;
}

/// The largest share of the time since the last call that a thread has spent waiting.
class Contention {
 public:
  double look() {
    const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    std::map<std::string, int64_t> waited = waited_ns();
    int64_t longest = 0;
    for (const auto& [thread, ns] : waited) {
      const auto before = waited_.find(thread);
      if (before != waited_.end()) longest = std::max(longest, ns - before->second);
    }
    const double elapsed = std::chrono::duration<double, std::nano>(now - last_).count();
    waited_ = std::move(waited);
    last_ = now;
    return static_cast<double>(longest) / elapsed;
  }

 private:
  std::map<std::string, int64_t> waited_ = waited_ns();
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

/// A thread with all signals blocked: they belong to the thread that polls for them.
template <typename Body>
std::thread without_signals(Body body) {
  const BlockedSignals blocked;
  return std::thread(std::move(body));
}

/// A flag that a thread waits for.
class Flag {
 public:
  void set() {
    {
      const std::lock_guard lock(mutex_);
      set_ = true;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return set_; });
  }
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

/// Returns whether this number of additional threads can start.
bool can_start(size_t threads) {
  Flag end;
  std::vector<std::thread> started;
  try {
    while (started.size() < threads) started.push_back(without_signals([&end] { end.wait(); }));
  } catch (const std::system_error&) {  // no memory for a stack, or too many threads
  }
  end.set();
  for (std::thread& thread : started) thread.join();
  return started.size() == threads;
}

/// libgomp counts the threads of all its teams. If they are more than the cores, a waiting thread
/// spins for 100 rounds instead of 300,000 (do_spin() in config/linux/wait.h, the counts in env.c).
/// This team only raises that number; its threads sleep.
class SleepingTeam {
 public:
  /// Null where its threads cannot start: libgomp would end the process.
  static std::unique_ptr<SleepingTeam> start() {
    try {
      if (can_start(static_cast<size_t>(size()))) return std::make_unique<SleepingTeam>();
    } catch (const std::system_error&) {
    }
    return nullptr;
  }
  SleepingTeam() : host_(without_signals([this] { sleep(); })) {}
  ~SleepingTeam() {
    end_.set();
    host_.join();  // libgomp ends its team with it
  }

 private:
  static int size() { return std::max(2, omp_get_num_procs() - omp_get_max_threads() + 2); }
  void sleep() {
#pragma omp parallel num_threads(size())
    asm volatile("");  // the compiler would remove an empty region
    end_.wait();
  }

  Flag end_;
  std::thread host_;
};

/// sched_setattr(2), for which glibc has no function.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0, deadline_ns = 0, period_ns = 0;
};

/// Under SCHED_OTHER the runtime is the time slice from Linux 6.12 on, and ignored before.
void ask_for_short_slices() {
  SchedulingAttributes attributes;
  const bool known = syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0;
  if (!known || attributes.policy != SCHED_OTHER) return;
  attributes.runtime_ns = kSliceNs;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

bool user_decides() {
  return std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
}

}  // namespace

struct SharedCores::Watch {
  void look() {
    std::unique_ptr<SleepingTeam> short_spins;
    bool can = true;
    Contention contention;
    for (int calm = 0; !end.wait_for(kLookEvery);) {
      const double waiting = contention.look();
      calm = waiting < kCalm ? calm + 1 : 0;
      if (waiting > kCrowded && short_spins == nullptr && can) {
        short_spins = SleepingTeam::start();
        can = short_spins != nullptr;
      }
      if (calm >= kCalmLooks) short_spins.reset();
      crowded = short_spins != nullptr;
    }
  }

  Flag end;
  std::atomic<bool> crowded = false;
  std::thread thread = without_signals([this] { look(); });
};

SharedCores::SharedCores() {
  if (user_decides() || omp_get_max_threads() == 1) return;
  ask_for_short_slices();
  try {
    watch_ = std::make_unique<Watch>();
  } catch (const std::system_error&) {  // its thread cannot start
  }
}

SharedCores::~SharedCores() {
  if (watch_ == nullptr) return;
  watch_->end.set();
  watch_->thread.join();
}

bool SharedCores::crowded() const { return watch_ != nullptr && watch_->crowded; }

}  // namespace lft::train
