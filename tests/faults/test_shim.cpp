// The shim itself: an unsafe writer loses data as expected, a safe one loses nothing. A shim
// without effect would prove nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "faults/support.h"
#include "src/io/files.h"

namespace lft::test::shim_test {
using namespace lft::io;
namespace {

/// Writes `text` with or without the steps that make it durable. One write, then up to three
/// fsyncs and a rename.
void write_name(const std::string& dir, const std::string& text, bool sync_file, bool sync_folder) {
  const std::string temporary = dir + "/new", path = dir + "/file";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (write(fd, text.data(), text.size()) < 0) _exit(3);
  if (sync_file) fsync(fd);
  close(fd);
  if (rename(temporary.c_str(), path.c_str()) != 0) _exit(3);
  if (sync_folder) sync_dir(dir);
  mkdir((dir + "/last").c_str(), 0777);  // the call at which power fails
}

struct Left {
  int code;
  std::string file;  // "-" if missing
};

Left after(const std::string& mode, bool sync_file, bool sync_folder) {
  const TempDir dir;
  dir.write("file", "old");
  const long last = 3 + (sync_file ? 1 : 0) + (sync_folder ? 1 : 0);
  const Shimmed ran = fork_shimmed(
      {dir.path(), mode, last}, [&] { write_name(dir.path(), "fresh", sync_file, sync_folder); });
  EXPECT_FALSE(path_exists(dir.file("last")));
  return {ran.code, path_exists(dir.file("file")) ? slurp(dir.file("file")) : "-"};
}

TEST(Shim, APowerCutTakesWhatWasNotSynced) {
  EXPECT_EQ(after("power", true, true).code, 128 + SIGKILL);
  EXPECT_EQ(after("power", true, true).file, "fresh");
  EXPECT_EQ(after("power", true, false).file,
            "old");  // the rename is undone, and the replaced file is restored
  EXPECT_EQ(after("power", false, true).file, "");  // the name is durable, its bytes are not
  EXPECT_EQ(after("power", false, false).file, "old");
}

TEST(Shim, NamesMayReachTheDiskBeforeData) {
  EXPECT_EQ(after("powerdata", true, true).file, "fresh");
  EXPECT_EQ(after("powerdata", true, false).file, "fresh");
  EXPECT_EQ(after("powerdata", false, false).file, "");
}

TEST(Shim, AKillTakesNothingThatWasWritten) {
  EXPECT_EQ(after("kill", false, false).file, "fresh");
}

TEST(Shim, AKillInAWriteLeavesHalfOfIt) {
  const TempDir dir;
  const Shimmed ran =
      fork_shimmed({dir.path(), "kill", 1}, [&] { write_name(dir.path(), "abcdef", true, true); });
  EXPECT_EQ(ran.code, 128 + SIGKILL);
  EXPECT_EQ(slurp(dir.file("new")), "abc");
}

TEST(Shim, APowerCutUndoesFoldersWithAllThatIsInThem) {
  const TempDir dir;
  fork_shimmed({dir.path(), "power", 6}, [&] {
    mkdir(dir.file("a").c_str(), 0777);
    write_name(dir.file("a"), "text", true, true);  // 2 to 6
  });
  EXPECT_FALSE(path_exists(dir.file("a")));
}

TEST(Shim, NamesInARenamedFolderAreFoundAgain) {
  const TempDir dir;
  fork_shimmed({dir.path(), "power", 6}, [&] {
    mkdir(dir.file("a").c_str(), 0777);
    close(open(dir.file("a/unsynced").c_str(), O_WRONLY | O_CREAT, 0666));
    sync_dir(dir.path());
    rename(dir.file("a").c_str(), dir.file("b").c_str());
    sync_dir(dir.path());
    mkdir(dir.file("c").c_str(), 0777);
    unlink(dir.file("none").c_str());
  });
  EXPECT_TRUE(path_exists(dir.file("b")));
  EXPECT_FALSE(path_exists(dir.file("b/unsynced")));
  EXPECT_FALSE(path_exists(dir.file("c")));
}

TEST(Shim, AFullDiskStaysFullButDeletes) {
  const TempDir dir;
  dir.write("big", "x");
  const Shimmed ran = fork_shimmed({dir.path(), "enospc", 1}, [&] {
    for (const char* name : {"a", "b"}) {
      if (mkdir(dir.file(name).c_str(), 0777) == 0 || errno != ENOSPC) _exit(3);
    }
    if (unlink(dir.file("big").c_str()) != 0) _exit(4);
  });
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.calls, 3);
}

TEST(Shim, TransientFaultsComeOnce) {
  const TempDir dir;
  for (const char* mode : {"eio", "eintr", "short"}) {
    const Shimmed ran = fork_shimmed({dir.path(), mode, 1}, [&] {
      const int fd = open(dir.file("file").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      const ssize_t first = write(fd, "abcdef", 6);
      const bool failed = std::string(mode) != "short" && first == -1 &&
                          errno == (mode[1] == 'i' && mode[2] == 'o' ? EIO : EINTR);
      const bool halved = std::string(mode) == "short" && first == 3;
      if (write(fd, "abcdef", 6) != 6) _exit(4);
      _exit(failed || halved ? 0 : 3);
    });
    EXPECT_EQ(ran.code, 0) << mode;
  }
}

TEST(Shim, LooksAwayElsewhere) {
  const TempDir dir, other;
  const Shimmed ran =
      fork_shimmed({dir.path(), "kill", 1}, [&] { write_name(other.path(), "fresh", true, true); });
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.calls, 0);
}

// The same, preloaded into the real program: a recipe copied by lft is complete or missing.
TEST(Shim, RunsBesideLft) {
  const TempDir dir;
  const std::string command = "LFT_RECIPES=" LFT_SOURCE_DIR "/recipes " LFT_BINARY_DIR
                              "/lft recipe cp quickstart " +
                              dir.file("r.yaml");
  const Shimmed counted = run_shimmed(command, {dir.path(), "count", 0});
  ASSERT_EQ(counted.code, 0) << counted.err;
  ASSERT_GE(counted.calls, 4);  // write, fsync, rename, fsync
  const std::string whole = slurp(dir.file("r.yaml"));
  ASSERT_FALSE(whole.empty());
  for (long k = 1; k <= counted.calls; ++k) {
    std::filesystem::remove(dir.file("r.yaml"));
    const Shimmed ran = run_shimmed(command, {dir.path(), "power", k});
    EXPECT_EQ(ran.code, 128 + SIGKILL);
    if (path_exists(dir.file("r.yaml"))) {
      EXPECT_EQ(slurp(dir.file("r.yaml")), whole) << k;
    }
  }
}

}  // namespace
}  // namespace lft::test::shim_test
