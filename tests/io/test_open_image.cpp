#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "src/io/image.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace lft::open_image_test {
using namespace lft::io;
namespace {

namespace fs = std::filesystem;

class OpenImage : public ::testing::Test {
 protected:
  OpenImage() {
    dir_.write("root/sub/a.png", "inside");
    dir_.write("outside.png", "outside");
    fs::create_symlink("sub/a.png", dir_.file("root/near.png"));
    fs::create_symlink(dir_.file("root/sub/a.png"), dir_.file("root/rooted.png"));
    fs::create_symlink("../outside.png", dir_.file("root/away.png"));
    fs::create_directory_symlink("..", dir_.file("root/up"));
  }
  std::string read(const std::string& name, bool follow = false) const {
    const FileHandle file = open_image(dir_.file("root"), name, follow);
    std::string bytes(file.size(), '\0');
    file.read_at(0, bytes.data(), bytes.size());
    return bytes;
  }
  const test::TempDir dir_;
};

/// One system call opens regular files; others are handled as before.
TEST_F(OpenImage, OpensWhatLiesBelowTheRoot) {
  for (const char* name :
       {"sub/a.png", "./sub/../sub//a.png", "near.png", "rooted.png", "../root/sub/a.png"})
    EXPECT_EQ(read(name), "inside") << name;
  EXPECT_EQ(read(dir_.file("root/sub/a.png")), "inside");
  EXPECT_TRUE(FileHandle::open_beneath(dir_.file("root"), "near.png").is_open());
}

TEST_F(OpenImage, NothingLeadsOutOfTheRoot) {
  for (const char* name :
       {"away.png", "up/outside.png", "../outside.png", "sub/../../outside.png"}) {
    EXPECT_FALSE(FileHandle::open_beneath(dir_.file("root"), name).is_open()) << name;
    EXPECT_LFT_ERROR(ErrorKind::kInput, "outside its folder", read(name));
  }
  EXPECT_EQ(read("away.png", /*follow=*/true), "outside");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "outside its folder", read("../outside.png", true));
}

TEST_F(OpenImage, WhatIsNoFileIsRefused) {
  ASSERT_EQ(mkfifo(dir_.file("root/pipe").c_str(), 0600), 0);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "pipe", read("pipe"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "a directory", read("sub"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "absent.png", read("absent.png"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not a file name", read(""));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not a file name", read(std::string("a\0b", 3)));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "URL", read("https://example.org/a.png"));
  EXPECT_FALSE(FileHandle::open_beneath(dir_.file("absent"), "a.png").is_open());
}

}  // namespace
}  // namespace lft::open_image_test
