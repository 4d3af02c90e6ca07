// `lft prepare --index`, and start-ups that use the index.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/run_lft.h"
#include "src/recipe/recipe.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft::prepare_index_test {
using namespace lft::recipe;
namespace {

namespace fs = std::filesystem;
using test::Ran;
using test::run_lft;

class PrepareIndex : public ::testing::Test {
 protected:
  PrepareIndex() {
    Recipe recipe = run_.recipe("out");
    recipe.train.max_steps = 2;
    file_ = run_.dir().write("run.yaml", dump_recipe(recipe));
  }
  std::string path(const std::string& name) const { return run_.dir().file(name); }

  const test::TinyRun run_;
  std::string file_;
};

TEST_F(PrepareIndex, WritesBesideTheDataWhatARunFinds) {
  const Ran ran = run_lft("prepare " + file_ + " --index");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("indexed 12 samples: " + path("rows.json.lft.*")), std::string::npos)
      << ran.out;
  EXPECT_TRUE(fs::exists(path("rows.json.lft.rows")));
  EXPECT_TRUE(fs::exists(path("rows.json.lft.lengths")));
  EXPECT_EQ(run_lft("train " + file_).code, 0);
  const auto steps = test::step_lines(path("out"));
  for (const char* name : {"rows.json.lft.rows", "rows.json.lft.lengths"})
    run_.dir().write(name, "not an index");
  const Ran again = run_lft("train " + file_ + " --set output_dir=" + path("again"));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.err.find("cannot be used"), std::string::npos) << again.err;
  const auto others = test::step_lines(path("again"));
  ASSERT_EQ(others.size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(others[i]["run_hash"], steps[i]["run_hash"]);
}

/// An evaluation reads rows under other rules than a run; the data are the same.
TEST_F(PrepareIndex, AnEvaluationDoesNotCallTheDataOthers) {
  EXPECT_EQ(run_lft("prepare " + file_ + " --index").code, 0);
  const Ran ran = run_lft("eval --model " + run_.model() + " --template llava-v1 --data " +
                          path("rows.json") + " --image-root " + path("images"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err.find("other data"), std::string::npos) << ran.err;
}

TEST_F(PrepareIndex, AResumedRunTakesTheIndexOfItsFolder) {
  EXPECT_EQ(run_lft("train " + file_).code, 0);
  EXPECT_TRUE(fs::exists(path("out/index/train.rows")));
  EXPECT_TRUE(fs::exists(path("out/index/train.lengths")));
  const Ran on = run_lft("train " + file_ + " --resume --set train.max_steps=4");
  EXPECT_EQ(on.code, 0) << on.err;
  EXPECT_EQ(on.err.find("made again"), std::string::npos) << on.err;
  std::string rows = test::slurp(path("rows.json"));  // another answer with as many bytes
  rows[rows.find("\"gpt\"") + rows.substr(rows.find("\"gpt\"")).find("value") + 9] ^= 1;
  run_.dir().write("rows.json", rows);
  const Ran other = run_lft("train " + file_ + " --resume --set train.max_steps=6");
  EXPECT_EQ(other.code, 4) << other.err;
  EXPECT_NE(other.err.find("made again"), std::string::npos) << other.err;
}

TEST_F(PrepareIndex, ShardsOrAnIndexAndNotBoth) {
  for (const std::string& options : {std::string(), " --index --out " + path("shards")}) {
    const Ran ran = run_lft("prepare " + file_ + options);
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_NE(ran.err.find("--out DIR for shards, or --index"), std::string::npos) << ran.err;
  }
  EXPECT_EQ(run_lft("prepare " + file_ + " --out " + path("shards")).code, 0);
  const Ran ran = run_lft("prepare " + file_ + " --index --set data.train=" + path("shards"));
  EXPECT_EQ(ran.code, 2) << ran.err;
}

TEST_F(PrepareIndex, BlocksAreAnOrderOfTheirOwn) {
  EXPECT_EQ(run_lft("train " + file_ + " --set data.shuffle=blocks").code, 0);
  EXPECT_NE(test::slurp(path("out/recipe.resolved.yaml")).find("shuffle: blocks"),
            std::string::npos);
  const Ran bad = run_lft("check " + file_ + " --set data.shuffle=block");
  EXPECT_EQ(bad.code, 2) << bad.err;
  EXPECT_NE(bad.err.find("true, false or blocks"), std::string::npos) << bad.err;
}

}  // namespace
}  // namespace lft::prepare_index_test
