// Every damaged byte is detected, every refusal reports the expected and the found value, and old
// formats always load.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/support.h"
#include "src/base/hash.h"

namespace lft::damage_test {
using namespace lft::checkpoint;
using namespace lft::io;
using namespace lft::recipe;
namespace {

using namespace test;

const char* const kFiles[] = {"MANIFEST", "optimizer.safetensors", "recipe.yaml", "state.json",
                              "trainables.safetensors"};

/// Steps 3 and 4 of a run, with one file of step 4 replaced at a time.
class Damage : public ::testing::Test {
 protected:
  Damage() {
    for (const int64_t step : {3, 4}) save_checkpoint(dir_.path(), small_checkpoint(step), 2);
  }
  std::string file(const std::string& name) const { return dir_.file("step-4/" + name); }

  /// The step is refused with this file and both hashes, and a resume uses the step before it with
  /// one warning.
  void expect_refused(const std::string& name, const std::string& what) const {
    const std::string text = test::thrown_text(
        ErrorKind::kCheckpoint, [&] { load_checkpoint(dir_.file("step-4")); }, __FILE__, __LINE__);
    EXPECT_NE(text.find("step-4/" + name), std::string::npos) << what << ": " << text;
    EXPECT_NE(text.find("found: "), std::string::npos) << what << ": " << text;
    if (name != "MANIFEST") {
      EXPECT_NE(text.find("sha256 " + sha256(original_)), std::string::npos)
          << what << ": " << text;
      if (path_exists(file(name)) && !is_directory(file(name))) {
        EXPECT_NE(text.find("sha256 " + sha256(slurp(file(name)))), std::string::npos)
            << what << ": " << text;
      }
    }
    std::vector<std::string> warnings;
    const std::optional<Checkpoint> newest = load_newest(dir_.path(), &warnings);
    ASSERT_TRUE(newest.has_value());
    EXPECT_EQ(newest->step, 3) << what;
    ASSERT_EQ(warnings.size(), 1u) << what;
    EXPECT_NE(warnings[0].find(name), std::string::npos) << warnings[0];
    EXPECT_NE(list_checkpoints(dir_.path(), true)[0].fault, "") << what;
  }

  TempDir dir_;
  std::string original_;
};

TEST_F(Damage, EveryFlippedBitIsSeen) {  // guarantee A6
  for (const std::string name : kFiles) {
    original_ = slurp(file(name));
    for (size_t i = 0; i < 32; ++i) {
      const size_t at =
          i * (original_.size() - 1) / 31;  // the first byte, the last, and 30 between them
      std::string flipped = original_;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (i % 8)));
      put_bytes(file(name), flipped);
      expect_refused(name,
                     name + " bit " + std::to_string(i % 8) + " of byte " + std::to_string(at));
    }
    put_bytes(file(name), original_);
  }
  expect_same(load_checkpoint(dir_.file("step-4")), small_checkpoint(4));
}

TEST_F(Damage, EveryBitOfManifestCounts) {
  original_ = slurp(file("MANIFEST"));
  for (size_t at = 0; at < original_.size(); ++at) {
    std::string flipped = original_;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    put_bytes(file("MANIFEST"), flipped);
    EXPECT_NE(list_checkpoints(dir_.path(), false)[0].fault, "") << at;
  }
}

TEST_F(Damage, CutGoneAndLongerFilesAreSeen) {  // guarantee A6
  for (const std::string name : kFiles) {
    original_ = slurp(file(name));
    for (const size_t left : {size_t{0}, size_t{1}, original_.size() - 1}) {
      put_bytes(file(name), original_.substr(0, left));
      expect_refused(name, name + " cut to " + std::to_string(left));
    }
    put_bytes(file(name), original_ + original_.substr(0, 1));
    expect_refused(name, name + " with a byte more");
    put_bytes(file(name), original_ + original_);
    expect_refused(name, name + " twice");
    std::filesystem::remove(file(name));
    expect_refused(name, name + " gone");
    std::filesystem::create_directory(file(name));
    expect_refused(name, name + " a directory");
    std::filesystem::remove(file(name));
    put_bytes(file(name), original_);
  }
  expect_same(load_checkpoint(dir_.file("step-4")), small_checkpoint(4));
}

TEST_F(Damage, AFileOfAnotherStepIsSeen) {
  original_ = slurp(file("trainables.safetensors"));
  put_bytes(file("trainables.safetensors"), slurp(dir_.file("step-3/trainables.safetensors")));
  expect_refused("trainables.safetensors", "of step 3");
}

TEST_F(Damage, AStepUnderAnotherNumberIsSeen) {
  std::filesystem::rename(dir_.file("step-4"), dir_.file("step-5"));
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "named for another step",
                   load_checkpoint(dir_.file("step-5")));
  std::filesystem::rename(dir_.file("step-5"),
                          dir_.file("best"));  // any other name belongs to the user
  expect_same(load_checkpoint(dir_.file("best")), small_checkpoint(4));
}

TEST_F(Damage, FilesThatManifestDoesNotNameChangeNothing) {
  put_bytes(file(".nfs000001"), "left by a network file system");
  expect_same(load_checkpoint(dir_.file("step-4")), small_checkpoint(4));
}

TEST_F(Damage, AManifestThatNamesOtherFilesIsRefused) {
  const std::string text = slurp(file("MANIFEST")), json = text.substr(0, text.rfind("sha256 "));
  for (const std::string name : {"../../etc/passwd", "/etc/passwd", "", "state.json "}) {
    std::string forged = json;
    forged.replace(forged.find("\"recipe.yaml\""), 13, Json(name).dump());
    put_bytes(file("MANIFEST"), forged + "sha256 " + sha256(forged) + "\n");
    EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "unknown file", load_checkpoint(dir_.file("step-4")));
  }
}

TEST(Resume, NeverStartsOverWhereAStepIs) {  // guarantee A7
  const TempDir dir;
  std::vector<std::string> warnings;
  EXPECT_FALSE(load_newest(dir.file("none"), &warnings).has_value());
  EXPECT_FALSE(load_newest(dir.path(), &warnings).has_value());
  for (const int64_t step : {1, 2}) save_checkpoint(dir.path(), small_checkpoint(step), 2);
  for (const char* step : {"step-1", "step-2"})
    put_bytes(dir.file(std::string(step) + "/recipe.yaml"), "");
  const std::string text = test::thrown_text(
      ErrorKind::kCheckpoint, [&] { load_newest(dir.path(), &warnings); }, __FILE__, __LINE__);
  EXPECT_NE(text.find("step-1: the checkpoint is damaged"), std::string::npos) << text;
  EXPECT_NE(text.find("step-2: the checkpoint is damaged"), std::string::npos) << text;
  EXPECT_TRUE(warnings.empty());
}

TEST(Resume, AStepUnderAStrangeNameIsNotForgotten) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(1), 2);
  std::filesystem::rename(dir.file("step-1"), dir.file("step-1.bak"));
  std::vector<std::string> warnings;
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "step-1.bak: the name is no step's",
                   load_newest(dir.path(), &warnings));
}

TEST(Resume, AFileInPlaceOfTheFolderIsNoFreshStart) {
  const TempDir dir;
  std::vector<std::string> warnings;
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "checkpoints",
                   load_newest(dir.write("checkpoints", ""), &warnings));
}

TEST(Formats, TheFirstOneLoadsForEver) {  // guarantee A10
  const std::string stored = LFT_SOURCE_DIR "/tests/checkpoint/fixtures/v1";
  Checkpoint loaded = load_checkpoint(stored + "/step-3");
  loaded.recipe =
      dump_recipe(parse_recipe(loaded.recipe, "recipe.yaml"));  // newer fields have their defaults
  expect_same(loaded, small_checkpoint(3));
  std::vector<std::string> warnings;
  EXPECT_EQ(load_newest(stored, &warnings)->step, 3);
  EXPECT_TRUE(warnings.empty());
}

TEST(Formats, AFutureOneIsSaidSoAndLeftAlone) {  // guarantee A10
  const TempDir dir;
  for (const int64_t step : {1, 2}) save_checkpoint(dir.path(), small_checkpoint(step), 2);
  const std::string path = dir.file("step-2/MANIFEST");
  std::string text = slurp(path), json = text.substr(0, text.rfind("sha256 "));
  json.replace(json.find("\"version\": 1"), 12, "\"version\": 2");
  put_bytes(path, json + "sha256 " + sha256(json) + "\n");
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "written by a newer lft",
                   load_checkpoint(dir.file("step-2")));
  std::vector<std::string> warnings;
  EXPECT_EQ(load_newest(dir.path(), &warnings)->step, 1);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("newer lft"), std::string::npos) << warnings[0];
  save_checkpoint(dir.path(), small_checkpoint(3), 1);
  EXPECT_EQ(test::names_in(dir.path()), (std::vector<std::string>{"step-2", "step-3"}));
}

/// A state with matching hashes; only its values are invalid.
TEST(ForgedState, IsRefusedByItsField) {
  const std::vector<std::pair<const char*, Json>> forged = {{"/adam_steps/w", uint64_t{1} << 63},
                                                            {"/adam_steps/w", 1e308},
                                                            {"/adam_steps/w", -1},
                                                            {"/adam_steps", {5}},
                                                            {"/best_eval/loss_bits", "x"},
                                                            {"/best_eval/since", 0.5},
                                                            {"/last_eval/figures", {"a"}},
                                                            {"/step", 1e308},
                                                            {"/step", 4},
                                                            {"/lr_factor", 0},
                                                            {"/precision", "fp64"},
                                                            {"/recovered", 1},
                                                            {"/split", 0},
                                                            {"/norm_watch/loss/first", "x"},
                                                            {"/norm_watch/below_tenth", 1e308},
                                                            {"/skipped_samples", {{"row", 1}}}};
  for (const auto& [place, value] : forged) {
    const TempDir dir;
    Checkpoint checkpoint = small_checkpoint(3);
    checkpoint.state[Json::json_pointer(place)] = value;
    save_checkpoint(dir.path(), checkpoint, 2);
    std::string field = place + 1;
    std::ranges::replace(field, '/', '.');
    EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "state.json: " + field,
                     load_checkpoint(dir.file("step-3")));
  }
}

}  // namespace
}  // namespace lft::damage_test
