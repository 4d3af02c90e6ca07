// Held-out rows of a data set: how many, how they are chosen, and no shared row, image or text.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "data/fixtures.h"
#include "src/data/dataset_joined.h"
#include "src/data/held_out.h"
#include "src/data/prepared_write.h"
#include "support/expect_error.h"
#include "support/tar_file.h"

namespace lft::held_out_test {
using namespace lft::data;
using namespace lft::io;
namespace {

using namespace lft::test;

/// 60 rows without images, except those in `images`, which names the image of a row.
class HeldOutTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Dataset> rows(int count, const std::map<int, std::string>& images = {}) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      const std::string number = std::to_string(i),
                        image = images.contains(i) ? images.at(i) : std::string();
      text +=
          llava_row("r" + number, image, (image.empty() ? "Q" : "<image>\nQ") + number, "A") + "\n";
    }
    return open_dataset(dir_.write("d.jsonl", text), dir_.path(), tokenizer_, small_options());
  }

  const TempDir dir_;
  const ByteTokenizer tokenizer_;
};

TEST_F(HeldOutTest, EveryRowIsOnOneSideAndTheShareIsKept) {
  const auto whole = rows(60);
  for (const double share : {0.001, 0.05, 0.1, 0.5, 0.9}) {
    const HeldOut parts = hold_out(whole, share, 7);
    EXPECT_EQ(parts.eval->size(), std::max<int64_t>(std::llround(60 * share), 1)) << share;
    std::set<std::string> ids;
    for (const Dataset* part : {parts.train.get(), parts.eval.get()}) {
      for (int64_t i = 0; i < part->size(); ++i) {
        EXPECT_TRUE(ids.insert(part->id(i)).second) << part->id(i);
        EXPECT_EQ(part->get(i).id, part->id(i));
        EXPECT_EQ(part->row(i).id, part->id(i));
        EXPECT_EQ(part->length(i).tokens, static_cast<int64_t>(part->get(i).input_ids.size()));
      }
    }
    EXPECT_EQ(ids.size(), 60U);
  }
}

TEST_F(HeldOutTest, IsAFunctionOfTheSeed) {
  const auto whole = rows(60);
  EXPECT_EQ(held_out_rows(*whole, 0.2, 7), held_out_rows(*rows(60), 0.2, 7));
  EXPECT_NE(held_out_rows(*whole, 0.2, 7), held_out_rows(*whole, 0.2, 8));
  EXPECT_EQ(hold_out(whole, 0.2, 7).train->hash(), hold_out(whole, 0.2, 7).train->hash());
  EXPECT_NE(hold_out(whole, 0.2, 7).train->hash(), hold_out(whole, 0.2, 8).train->hash());
  EXPECT_NE(hold_out(whole, 0.2, 7).train->hash(), hold_out(whole, 0.2, 7).eval->hash());
}

TEST_F(HeldOutTest, RowsThatShareAnImageOrSayTheSameStayTogether) {
  std::map<int, std::string> images;
  for (int i = 0; i < 40; ++i)
    images[i] = (i % 2 == 0 ? "./" : "") + std::to_string(i / 4) + ".bmp";
  const auto whole = rows(60, images);
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    const std::vector<int64_t> held = held_out_rows(*whole, 0.3, seed);
    EXPECT_EQ(held.size(), 18U);  // rows without an image fill the remainder of groups of four
    std::map<int64_t, int> shown;
    for (const int64_t row : held) {
      if (row < 40) ++shown[row / 4];
    }
    for (const auto& [image, count] : shown) EXPECT_EQ(count, 4) << image;
  }
  std::string twice;
  for (int i = 0; i < 20; ++i)
    twice += llava_row(std::to_string(i), "", "Q" + std::to_string(i / 2), "A") + "\n";
  const auto doubled =
      open_dataset(dir_.write("twice.jsonl", twice), "", tokenizer_, small_options());
  const std::vector<int64_t> held = held_out_rows(*doubled, 0.3, 1);
  ASSERT_EQ(held.size(), 6U);
  for (size_t i = 0; i < 6; i += 2) EXPECT_EQ(held[i] / 2, held[i + 1] / 2);
}

/// Groups by number of each row: each is held out whole or not at all, and no others are joined.
void expect_groups(const Dataset& whole, const std::vector<int>& groups, int64_t held) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    std::map<int, int> count, all;
    for (const int group : groups) ++all[group];
    const std::vector<int64_t> rows = held_out_rows(whole, 0.3, seed);
    EXPECT_EQ(std::ssize(rows), held);
    for (const int64_t row : rows) ++count[groups.at(static_cast<size_t>(row))];
    for (const auto& [group, rows_held] : count) EXPECT_EQ(rows_held, all[group]) << group;
  }
}

TEST_F(HeldOutTest, AFileHasSeveralNames) {
  std::map<int, std::string> images;
  std::vector<int> groups;
  std::filesystem::create_directory_symlink(dir_.path(), dir_.file("folder"));
  for (int i = 0; i < 10; ++i) {
    const std::string name = std::to_string(i) + ".bmp", path = dir_.write(name, "BM");
    std::filesystem::create_symlink(name, dir_.file("link" + name));
    for (const std::string& other :
         {name, path, "file://" + path, "link" + name, "./x/../" + name, "folder/" + name}) {
      images[static_cast<int>(groups.size())] = other;
      groups.push_back(i);
    }
  }
  std::filesystem::create_directory(dir_.file("x"));
  expect_groups(*rows(60, images), groups, 18);
}

/// 20 rows of one text with 10 pictures, in two files; a member of one has the name of a member of
/// the other with another picture.
TEST_F(HeldOutTest, AnEmbeddedImageIsKnownByItsBytes) {
  std::vector<int> groups;
  for (const int first : {0, 3}) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = 0; i < 10; ++i) {
      const std::string key = std::to_string(i) + ".";
      groups.push_back((first + i) % 10);
      members.emplace_back(key + "json", llava_row("r" + key, "", "<image>Q", "A"));
      members.emplace_back(key + "bmp", bmp(8, 8, static_cast<uint8_t>(groups.back())));
    }
    dir_.write("tars/" + std::to_string(first) + ".tar", tar_file(members));
  }
  const std::shared_ptr<const Dataset> tars =
      open_dataset(dir_.file("tars"), "", tokenizer_, small_options());
  expect_groups(*tars, groups, 6);
  prepare_dataset(*tars, small_options(), dir_.file("prepared"));
  expect_groups(*open_dataset(dir_.file("prepared"), "", tokenizer_, small_options()), groups, 6);
}

TEST_F(HeldOutTest, AUriAndAMemberOfATarFileAreOneImage) {
  const std::vector<std::pair<std::string, std::string>> members = {
      {"0.json", llava_row("a", "", "<image>Q", "A")}, {"0.png", "foo"}};
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(
      open_dataset(dir_.write("a.tar", tar_file(members)), "", tokenizer_, small_options()));
  parts.push_back(open_dataset(
      dir_.write("a.jsonl", llava_row("b", "data:image/png;base64,Zm9v", "<image>R", "B") + "\n" +
                                llava_row("c", "", "S", "C")),
      "", tokenizer_, small_options()));
  const auto both = join_datasets(std::move(parts), /*as_sources=*/false);
  EXPECT_EQ(both->image_keys(0), both->image_keys(1));
  EXPECT_TRUE(both->image_keys(2).empty());
}

TEST_F(HeldOutTest, WhatCannotBeCutIsRefused) {
  std::map<int, std::string> one;
  for (int i = 0; i < 20; ++i) one[i] = "one.bmp";
  const std::string block = thrown_text(
      ErrorKind::kInput, [&] { held_out_rows(*rows(20, one), 0.1, 1); }, __FILE__, __LINE__);
  EXPECT_NE(block.find("up to 20 share images"), std::string::npos) << block;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no part of the rows", held_out_rows(*rows(1), 0.5, 1));
  EXPECT_EQ(held_out_rows(*rows(2), 0.5, 1).size(), 1U);
}

TEST_F(HeldOutTest, TheListNamesRowsAndPlaces) {
  const auto whole = rows(3);
  const std::string path = dir_.file("d.jsonl");
  EXPECT_EQ(
      row_list(*select_rows(whole, {0, 2})),
      R"({"id":"r0","where":")" + path + ":1\"}\n" + R"({"id":"r2","where":")" + path + ":3\"}\n");
}

}  // namespace
}  // namespace lft::held_out_test
