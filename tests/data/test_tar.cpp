// Tar files: compared with GNU tar's output in each of its formats, and refused ones.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "src/data/rows/tar.h"
#include "support/expect_error.h"
#include "support/slurp.h"
#include "support/tar_file.h"
#include "support/temp_dir.h"

namespace lft::tar_test {
using namespace lft::data;
using namespace lft::io;
namespace {

std::map<std::string, std::string> members_of(const std::string& path) {
  const FileHandle file = FileHandle::open_to_read(path);
  TarReader reader(file);
  std::map<std::string, std::string> members;
  for (TarMember member; reader.next(member);) {
    std::string bytes(member.bytes, '\0');
    file.read_at(member.offset, bytes.data(), bytes.size());
    members[member.name] = bytes;
    // The stored position of a member finds it again.
    TarReader again(file, member.header, reader.at());
    TarMember found;
    EXPECT_TRUE(again.next(found));
    EXPECT_EQ(found.name, member.name);
    EXPECT_EQ(found.offset, member.offset);
    EXPECT_FALSE(again.next(found));
  }
  return members;
}

TEST(Tar, ReadsEveryFormatOfGnuTar) {
  const test::TempDir dir;
  const std::string long_name = "in/" + std::string(60, 'f') + "/" + std::string(90, 'n') + ".jpg",
                    longest = "in/" + std::string(150, 'x') + ".png";
  const std::map<std::string, std::string> want = {{"in/a.json", "{}"},
                                                   {"in/empty.txt", ""},
                                                   {"in/b.jpg", std::string(1000, 'b')},
                                                   {long_name, std::string(512, 'l')},
                                                   {longest, "png"}};
  for (const auto& [name, bytes] : want) dir.write(name, bytes);
  for (const std::string format : {"gnu", "pax", "ustar", "v7", "oldgnu"}) {
    const std::string path = dir.file(format + ".tar");
    const bool short_names = format == "ustar" || format == "v7";
    const std::string only = format == "v7" ? " in/a.json in/empty.txt in/b.jpg"
                             : short_names  ? " in/a.json in/empty.txt in/b.jpg " + long_name
                                            : " in";
    ASSERT_EQ(
        std::system(
            ("cd " + dir.path() + " && tar --format=" + format + " -cf " + path + only).c_str()),
        0);
    const auto members = members_of(path);
    EXPECT_EQ(members.size(), format == "v7" ? 3u : short_names ? 4u : 5u) << format;
    for (const auto& [name, bytes] : members) EXPECT_EQ(bytes, want.at(name)) << format;
  }
}

TEST(Tar, WritesWhatGnuTarReads) {
  const test::TempDir dir;
  const std::string deep = std::string(120, 'd') + "/" + std::string(99, 'f');
  dir.write("x.tar", test::tar_file({{"a.json", "{}"}, {deep, std::string(700, 'q')}}));
  ASSERT_EQ(std::system(("cd " + dir.path() + " && tar -xf x.tar").c_str()), 0);
  EXPECT_EQ(test::slurp(dir.file("a.json")), "{}");
  EXPECT_EQ(test::slurp(dir.file(deep)), std::string(700, 'q'));
  EXPECT_EQ(members_of(dir.file("x.tar")).size(), 2u);
}

TEST(Tar, RefusesWhatIsCutDamagedOrNoFile) {
  const test::TempDir dir;
  const std::string good = test::tar_file({{"a.json", std::string(600, 'a')}, {"b.jpg", "b"}});
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    const std::string path = dir.write("x.tar", bytes);
    EXPECT_LFT_ERROR(ErrorKind::kInput, what, members_of(path));
  };
  refused(good.substr(0, 900), "cut within a member");
  refused(good.substr(0, good.size() - 2 * kTarBlock), "no end");
  refused(good.substr(0, 1600), "cut");
  std::string flipped = good;
  flipped[3] ^= 1;
  refused(flipped, "no header");
  refused(good + good, "something after the end");
  ASSERT_EQ(
      std::system(("cd " + dir.path() + " && ln -s nowhere link && tar -cf l.tar link").c_str()),
      0);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no regular file", members_of(dir.file("l.tar")));
  EXPECT_FALSE(is_tar(std::string(1024, '\0')));
  EXPECT_FALSE(is_tar("[{}]"));
}

/// Sizes of 8 GiB and more are written in base 256; only the headers of such a file are read.
TEST(Tar, ReadsAMemberOfManyGigabytes) {
  const test::TempDir dir;
  ASSERT_EQ(std::system(("cd " + dir.path() +
                         " && truncate -s 9G big && tar --format=gnu -cf - big 2>/dev/null |"
                         " head -c 512 > head.tar")
                            .c_str()),
            0);
  std::string bytes = test::slurp(dir.file("head.tar"));
  const std::string path = dir.write("big.tar", bytes);
  std::filesystem::resize_file(path, 512 + (9ull << 30) + 1024);
  const FileHandle file = FileHandle::open_to_read(path);
  TarReader reader(file);
  TarMember member;
  ASSERT_TRUE(reader.next(member));
  EXPECT_EQ(member.bytes, 9ull << 30);
  EXPECT_FALSE(reader.next(member));
}

}  // namespace
}  // namespace lft::tar_test
