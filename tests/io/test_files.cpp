#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "src/io/file_handle.h"
#include "src/io/files.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace lft::files_test {
using namespace lft::io;
namespace {

using Names = std::vector<std::string>;

/// A directory with the file "a".
void write_with_a(const std::string& path, const std::string& text) {
  write_dir_atomic(path, [&](const std::string& tmp) { write_file_atomic(tmp + "/a", text); });
}

TEST(Files, ReadFileTakesRegularFilesOnly) {
  const test::TempDir dir;
  EXPECT_EQ(read_file(dir.write("a", std::string("x\0y", 3))), std::string("x\0y", 3));
  EXPECT_EQ(read_file(dir.write("empty", "")), "");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "No such file", read_file(dir.file("missing")));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "a directory", read_file(dir.path()));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "device, pipe or socket", read_file("/dev/zero"));
  ASSERT_EQ(mkfifo(dir.file("pipe").c_str(), 0600), 0);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "device, pipe or socket", read_file(dir.file("pipe")));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "at most 2 bytes", read_file(dir.file("a"), 2));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "NUL", read_file(dir.file("a") + std::string("\0b", 2)));
  EXPECT_EQ(read_file(dir.file("a"), 3).size(), 3u);
}

TEST(Files, WriteFileAtomicReplacesAndLeavesNothingBehind) {
  const test::TempDir dir;
  const std::string path = dir.file("a.json");
  write_file_atomic(path, "one");
  write_file_atomic(path, "two");
  EXPECT_EQ(read_file(path), "two");
  EXPECT_EQ(list_dir(dir.path()), Names{"a.json"});
}

TEST(Files, ADeviceOrPipeIsWrittenToAndNotReplaced) {
  const test::TempDir dir;
  const std::string pipe = dir.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_LFT_ERROR(ErrorKind::kResource, "start the program that reads",
                   write_file_atomic(pipe, "x"));
  std::string read;
  std::thread reader([&] {
    std::ifstream file(pipe);
    std::getline(file, read, '\0');
  });
  FileHandle stream;
  while (!stream.is_open()) {  // until the reader has opened it
    try {
      stream = FileHandle::open_stream(pipe);
    } catch (const Error&) {
      std::this_thread::yield();
    }
  }
  write_file_atomic(pipe, "words");
  stream.close();
  reader.join();
  EXPECT_EQ(read, "words");
  struct stat status {};
  ASSERT_EQ(lstat(pipe.c_str(), &status), 0);
  EXPECT_TRUE(S_ISFIFO(status.st_mode));
  EXPECT_FALSE(FileHandle::open_stream(dir.write("file", "x")).is_open());
  EXPECT_FALSE(FileHandle::open_stream(dir.file("missing")).is_open());
  EXPECT_EQ(list_dir(dir.path()), (Names{"file", "pipe"}));
}

TEST(Files, AFailedWriteKeepsTheOldAndNamesTheFile) {
  const test::TempDir dir;
  make_dirs(dir.file("taken/inner"));
  EXPECT_LFT_ERROR(ErrorKind::kResource, "taken", write_file_atomic(dir.file("taken"), "x"));
  EXPECT_LFT_ERROR(ErrorKind::kResource, "missing/.tmp-a",
                   write_file_atomic(dir.file("missing/a"), "x"));
  EXPECT_EQ(list_dir(dir.path()), Names{"taken"});
  EXPECT_EQ(list_dir(dir.file("taken")), Names{"inner"});
}

TEST(Files, AFullDiskNamesBytesNeededAndFree) {
  FileHandle full = FileHandle::create("/dev/full", 1234);
  EXPECT_LFT_ERROR(ErrorKind::kResource, "1234 bytes needed", full.write("x", 1));
  EXPECT_LFT_ERROR(ErrorKind::kResource, "bytes free", full.write("x", 1));
}

TEST(Files, WriteDirAtomicMakesAWholeDirectory) {
  const test::TempDir dir;
  const std::string path = dir.file("out/step-1");
  write_dir_atomic(path + "/", [&](const std::string& tmp) {
    EXPECT_EQ(tmp, dir.file("out/.tmp-step-1"));
    EXPECT_FALSE(path_exists(path));
    write_file_atomic(tmp + "/a", "1");
    make_dirs(tmp + "/sub");
    write_file_atomic(tmp + "/sub/b", "2");
  });
  EXPECT_EQ(list_dir(dir.file("out")), Names{"step-1"});
  EXPECT_EQ(read_file(path + "/sub/b"), "2");
}

TEST(Files, WriteDirAtomicReplacesWhatItWroteBefore) {
  const test::TempDir dir;
  const std::string path = dir.file("adapter");
  for (const char* text : {"old", "new"}) {
    write_with_a(path, text);
  }
  EXPECT_EQ(read_file(path + "/a"), "new");
  EXPECT_EQ(list_dir(dir.path()), Names{"adapter"});
}

TEST(Files, WriteDirAtomicKeepsFilesOfOthers) {
  const test::TempDir dir;
  dir.write("adapter/a", "old");
  dir.write("adapter/notes.txt", "mine");
  testing::internal::CaptureStderr();
  write_with_a(dir.file("adapter"), "new");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("adapter.old-1"), std::string::npos);
  EXPECT_EQ(list_dir(dir.path()), (Names{"adapter", "adapter.old-1"}));
  EXPECT_EQ(read_file(dir.file("adapter.old-1/notes.txt")), "mine");
  EXPECT_EQ(list_dir(dir.file("adapter")), Names{"a"});
}

TEST(Files, AFailedFillLeavesTheOldDirectory) {
  const test::TempDir dir;
  const std::string path = dir.file("adapter");
  write_with_a(path, "old");
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "stop", write_dir_atomic(path, [&](const std::string& tmp) {
                     write_file_atomic(tmp + "/a", "new");
                     throw Error(ErrorKind::kNumeric, "stop");
                   }));
  EXPECT_EQ(read_file(path + "/a"), "old");
  EXPECT_EQ(list_dir(dir.path()), Names{"adapter"});
}

TEST(Files, LeftoversOfAKilledWriteAreClearedAway) {
  const test::TempDir dir;
  dir.write(".tmp-step-1/half", "x");
  dir.write(".tmp-a", "x");
  dir.write(".dead-step-1/old", "x");
  write_with_a(dir.file("step-1"), "1");
  write_file_atomic(dir.file("a"), "2");
  EXPECT_EQ(list_dir(dir.path()), (Names{"a", "step-1"}));
  EXPECT_EQ(list_dir(dir.file("step-1")), Names{"a"});
}

TEST(Files, ACrashBetweenTheTwoRenamesIsMended) {
  const test::TempDir dir;
  dir.write("adapter/a", "older");
  dir.write(".dead-adapter/a", "oldest");
  write_with_a(dir.file("adapter"), "new");
  EXPECT_EQ(list_dir(dir.path()), Names{"adapter"});
  EXPECT_EQ(read_file(dir.file("adapter/a")), "new");
}

TEST(Files, AFileInPlaceOfADirectoryIsRefused) {
  const test::TempDir dir;
  dir.write("a", "x");
  EXPECT_LFT_ERROR(ErrorKind::kResource, dir.file("a"),
                   write_dir_atomic(dir.file("a"), [](const std::string&) {}));
  EXPECT_LFT_ERROR(ErrorKind::kResource, dir.file("a"), make_dirs(dir.file("a")));
  EXPECT_LFT_ERROR(ErrorKind::kResource, dir.file("a"), make_dirs(dir.file("a/b/c")));
  EXPECT_EQ(read_file(dir.file("a")), "x");
}

TEST(Files, RemoveTreeDoesNotFollowLinks) {
  const test::TempDir dir;
  dir.write("keep/a", "x");
  make_dirs(dir.file("gone/deep"));
  ASSERT_EQ(symlink(dir.file("keep").c_str(), dir.file("gone/deep/link").c_str()), 0);
  remove_tree(dir.file("gone"));
  remove_tree(dir.file("never"));
  EXPECT_EQ(list_dir(dir.path()), Names{"keep"});
  EXPECT_EQ(read_file(dir.file("keep/a")), "x");
}

TEST(Files, PathsAreResolvedBeforeTheyAreCompared) {
  const test::TempDir dir;
  make_dirs(dir.file("root/sub"));
  make_dirs(dir.file("rootbeer"));
  ASSERT_EQ(symlink(dir.file("rootbeer").c_str(), dir.file("root/out").c_str()), 0);
  const std::string root = dir.file("root");
  EXPECT_TRUE(is_inside(root, root + "/"));
  EXPECT_TRUE(is_inside(root + "/sub/../sub/new", root));
  EXPECT_FALSE(is_inside(dir.file("rootbeer"), root));
  EXPECT_FALSE(is_inside(root + "/out", root));
  EXPECT_FALSE(is_inside(root + "/..", root));
  EXPECT_TRUE(is_inside(root, "/"));
  EXPECT_EQ(absolute_path(root + "/out/../root/./sub/"), root + "/sub");
  EXPECT_EQ(absolute_path("."), std::filesystem::current_path().string());
}

TEST(Files, FreeBytesOfAPathThatIsNotThereYet) {
  const test::TempDir dir;
  EXPECT_GT(free_bytes(dir.file("not/there/yet")), 0u);
}

TEST(FileHandle, AppendsReadsAndCuts) {
  const test::TempDir dir;
  const std::string path = dir.file("log");
  for (const char* line : {"one\n", "two\n"}) {
    FileHandle file = FileHandle::open_to_append(path);
    file.write(line, 4);
    file.sync();
    file.close();
  }
  EXPECT_EQ(read_file(path), "one\ntwo\n");
  FileHandle::open_to_append(path).truncate(4);
  const FileHandle file = FileHandle::open_to_read(path);
  char bytes[4];
  file.read_at(0, bytes, 4);
  EXPECT_EQ(std::string(bytes, 4), "one\n");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "ends early", file.read_at(2, bytes, 4));
}

}  // namespace
}  // namespace lft::files_test
