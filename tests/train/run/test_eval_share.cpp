// data.eval_share in whole runs: held-out rows are not trained on, are recorded, and are the
// same after a resume.
#include <gtest/gtest.h>

#include <set>

#include "src/train/inputs/run_inputs.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"

namespace lft::eval_share_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

class EvalShare : public ::testing::Test {
 protected:
  Recipe recipe(const std::string& out) const {
    Recipe recipe = run_.recipe(out);
    recipe.data.eval.clear();
    recipe.data.eval_share = 0.25;
    return recipe;
  }
  static std::set<std::string> listed(const Recipe& recipe) {
    std::set<std::string> ids;
    std::istringstream lines(test::slurp(recipe.output_dir + "/held_out.jsonl"));
    for (std::string line; std::getline(lines, line);) ids.insert(Json::parse(line)["id"]);
    return ids;
  }

  const test::TinyRun run_;
};

TEST_F(EvalShare, HoldsRowsOutAndListsThem) {
  const Recipe recipe = this->recipe("out");
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_EQ(test::events(recipe.output_dir, "eval").back()["samples"], 3);
  const std::set<std::string> held = listed(recipe);
  EXPECT_EQ(held.size(), 3U);
  const RunInputs inputs = open_inputs(this->recipe("again"));
  EXPECT_EQ(inputs.rows, 9);
  EXPECT_EQ(inputs.steps_per_epoch, 3);
  for (int64_t i = 0; i < inputs.data.train->size(); ++i)
    EXPECT_FALSE(held.contains(inputs.data.train->id(i)));
  for (int64_t i = 0; i < inputs.data.eval->size(); ++i)
    EXPECT_TRUE(held.contains(inputs.data.eval->id(i)));
}

TEST_F(EvalShare, ResumesWithTheSameRowsAndRefusesOthers) {
  const Recipe whole = recipe("whole"), parts = recipe("parts");
  ASSERT_EQ(train::train(whole), 0);
  ASSERT_EQ(train::train(parts, {.stop_after_step = 2}), 0);
  Recipe other = parts;
  other.data.eval_share = 0.5;
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "data.eval_share",
                   train::train(other, {.resume = true}));
  ASSERT_EQ(train::train(parts, {.resume = true}), 0);
  EXPECT_TRUE(test::run_bytes(whole.output_dir, 6) == test::run_bytes(parts.output_dir, 6));
  EXPECT_EQ(listed(whole), listed(parts));
  // A held-out row with other text is another data set too.
  Json rows = Json::parse(test::slurp(run_.dir().file("rows.json")));
  for (Json& row : rows) {
    if (listed(parts).contains(row["id"])) row["conversations"][1]["value"] = "other";
  }
  run_.dir().write("rows.json", rows.dump());
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "data", train::train(parts, {.resume = true}));
}

TEST_F(EvalShare, WithoutItNothingIsHeldOut) {
  Recipe recipe = this->recipe("none");
  recipe.data.eval_share = 0;
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_FALSE(std::filesystem::exists(recipe.output_dir + "/held_out.jsonl"));
  EXPECT_TRUE(test::events(recipe.output_dir, "eval").empty());
  EXPECT_EQ(open_inputs(this->recipe("some")).rows + 3, open_inputs([&] {
                                                          Recipe again = recipe;
                                                          again.output_dir += "-again";
                                                          return again;
                                                        }())
                                                            .rows);
}

}  // namespace
}  // namespace lft::eval_share_test
