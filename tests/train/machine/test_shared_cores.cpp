// How threads wait for each other while other programs use every core.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include "models/ops/core/parallel.h"
#include "src/train/machine/shared_cores.h"

namespace lft::train {
namespace {

using std::chrono::milliseconds;

constexpr char kChild[] = "LFT_TEST_SHARED_CORES";  // set in the process started by a test

/// Processes that compute in a busy loop, one per core.
class BusyCores {
 public:
  BusyCores() {
    for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile unsigned turns = 0;;) turns = turns + 1;
      }
      pids_.push_back(pid);
    }
  }
  ~BusyCores() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }

 private:
  std::vector<pid_t> pids_;
};

void region() {
  ops::parallel_for(1024, 1, [](int64_t begin, int64_t end) {
    volatile double sum = 0;
    for (int64_t i = begin; i < end; ++i) sum = sum + static_cast<double>(i);
  });
}

/// CPU seconds of all threads of this process.
double computed() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/// CPU time of 100 gaps of 10 ms between two parallel regions, in which only a spinning thread
/// computes.
double computed_in_gaps() {
  const double before = computed();
  for (int i = 0; i < 100; ++i) {
    region();
    std::this_thread::sleep_for(milliseconds(10));
  }
  return computed() - before;
}

/// Runs one case of this program in a separate process, whose OpenMP runtime has read only
/// `policy`; returns its exit status.
int run_case(const char* name, const char* policy) {
  const pid_t pid = fork();
  if (pid == 0) {
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    if (policy != nullptr) setenv("OMP_WAIT_POLICY", policy, 1);
    setenv("OMP_NUM_THREADS", "2", 1);
    setenv(kChild, "1", 1);
    const std::string filter = std::string("--gtest_filter=SharedCores.") + name;
    execl("/proc/self/exe", "test_train", filter.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool is_child() { return std::getenv(kChild) != nullptr; }

TEST(SharedCores, AWaitingThreadSleepsNextToOtherProgramsAndSpinsAlone) {
  if (!is_child()) {
    EXPECT_EQ(run_case("AWaitingThreadSleepsNextToOtherProgramsAndSpinsAlone", nullptr), 0);
    return;
  }
  const SharedCores cores;
  EXPECT_FALSE(cores.crowded());
  const BusyCores busy;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!cores.crowded() && std::chrono::steady_clock::now() < end) region();
  ASSERT_TRUE(cores.crowded());
  // 100 spins of a few microseconds, and the regions; without it 1 s or its share of a core, half.
  EXPECT_LT(computed_in_gaps(), 0.1);
}

/// The address space has no room for another stack, first of the team, then of the watch.
TEST(SharedCores, ThreadsThatCannotStartAreNotNeeded) {
  if (!is_child()) {
    EXPECT_EQ(run_case("ThreadsThatCannotStartAreNotNeeded", nullptr), 0);
    return;
  }
  const SharedCores cores;
  region();  // starts the threads that work
  std::ifstream size("/proc/self/statm");
  rlim_t pages = 0;
  ASSERT_TRUE(size >> pages);
  const rlim_t most = pages * static_cast<rlim_t>(getpagesize()) + (1 << 20);
  const rlimit limit = {most, most};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  ASSERT_THROW(std::thread([] {}).join(), std::system_error);
  const BusyCores busy;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < end) region();  // the process would have ended
  EXPECT_FALSE(SharedCores().crowded());
}

TEST(SharedCores, TheUsersPolicyWins) {
  if (!is_child()) {
    EXPECT_EQ(run_case("TheUsersPolicyWins", "active"), 0);
    return;
  }
  const SharedCores cores;
  const BusyCores busy;
  const auto end = std::chrono::steady_clock::now() + milliseconds(500);
  while (std::chrono::steady_clock::now() < end) region();
  EXPECT_FALSE(cores.crowded());
  EXPECT_GT(computed_in_gaps(), 0.1);
}

}  // namespace
}  // namespace lft::train
