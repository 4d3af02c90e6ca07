// One run per output directory: a second run is refused with the name of the first, and a dead
// owner has no lock.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/support.h"
#include "src/checkpoint/run_lock.h"

namespace lft::run_lock_test {
using namespace lft::checkpoint;
namespace {

using test::slurp;
using test::TempDir;

/// A child that takes the lock and sleeps until it is killed; dies with the object.
class Holder {
 public:
  explicit Holder(const std::string& dir) {
    int ready[2];
    if (pipe(ready) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      const RunLock lock(dir);
      if (write(ready[1], "x", 1) == 1) pause();
      _exit(0);
    }
    close(ready[1]);
    char byte = 0;
    locked_ = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
  }
  ~Holder() { kill_it(); }
  void kill_it() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }
  bool locked() const { return locked_; }

 private:
  pid_t pid_ = -1;
  bool locked_ = false;
};

TEST(RunLock, TheSecondRunIsToldWhoHoldsIt) {  // guarantee C4
  const TempDir dir;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  Holder a(dir.path());
  ASSERT_TRUE(a.locked());
  EXPECT_LFT_ERROR(ErrorKind::kUsage,
                   "process " + std::to_string(a.pid()) + " on host " + host + ", since 20",
                   RunLock(dir.path()));
  a.kill_it();
  const RunLock b(dir.path());
  EXPECT_NE(slurp(dir.file(".lock")).find("process " + std::to_string(getpid()) + " "),
            std::string::npos);
}

TEST(RunLock, ARefusedRunChangesNothing) {
  const TempDir dir;
  const RunLock a(dir.path());
  const std::string before = slurp(dir.file(".lock"));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "another run", RunLock(dir.path()));
  EXPECT_EQ(slurp(dir.file(".lock")), before);
}

TEST(RunLock, EndsWithItsOwner) {
  const TempDir dir;
  { const RunLock a(dir.path()); }
  RunLock b(dir.path());
  const RunLock moved(std::move(b));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "another run", RunLock(dir.path()));
}

TEST(RunLock, OtherFoldersAreOtherRuns) {
  const TempDir one, two;
  const RunLock a(one.path()), b(two.path());
}

TEST(RunLock, AProgramThatTheRunStartsDoesNotHoldIt) {
  const TempDir dir;
  pid_t child = -1;
  {
    const RunLock a(dir.path());
    child = fork();
    if (child == 0) {
      execlp("sleep", "sleep", "60", nullptr);
      _exit(127);
    }
    usleep(200'000);  // the child has become another program
  }
  EXPECT_NO_THROW(RunLock(dir.path()));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(RunLock, AFolderThatCannotBeWrittenIsAResource) {
  const TempDir dir;
  EXPECT_LFT_ERROR(ErrorKind::kResource, dir.file("gone"), RunLock(dir.file("gone")));
  EXPECT_LFT_ERROR(ErrorKind::kResource, "/file", RunLock(dir.write("file", "")));
  EXPECT_LFT_ERROR(ErrorKind::kResource, "/proc", RunLock("/proc"));
}

TEST(RunLock, AReadOnlyFolderIsAResource) {  // guarantee A11: chmod 500
  const TempDir dir;
  ASSERT_EQ(chmod(dir.path().c_str(), 0500), 0);
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;  // the superuser can write to every folder
    if (geteuid() == 0 &&
        (chown(dir.path().c_str(), kNobody, kNobody) != 0 || setuid(kNobody) != 0))
      _exit(2);
    try {
      const RunLock lock(dir.path());
    } catch (const Error& error) {
      _exit(error.kind() == ErrorKind::kResource ? 0 : 3);
    }
    _exit(4);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lft::run_lock_test
