// data.group_by_length in whole runs: less padding, the same samples, resumed bit for bit.
#include <gtest/gtest.h>

#include <set>

#include "src/train/inputs/run_inputs.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"

namespace lft::group_by_length_test {
using namespace lft::data;
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

class GroupByLength : public ::testing::Test {
 protected:
  GroupByLength() {
    Json rows = Json::parse(test::slurp(run_.dir().file("rows.json")));
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i]["conversations"][1]["value"] = std::string(5 + i * 37 % 101, 'a');
    run_.dir().write("rows.json", rows.dump());
  }
  Recipe recipe(const std::string& out, bool grouped = true) const {
    Recipe recipe = run_.recipe(out);
    recipe.data.eval.clear();
    recipe.data.group_by_length = grouped;
    recipe.train.max_steps = 20;  // 10 per epoch
    return recipe;
  }
  /// Padding positions added over an epoch; every sample must occur once.
  static int64_t padding(const Recipe& recipe) {
    const RunInputs inputs = open_inputs(recipe);
    const std::unique_ptr<Loader> loader = start_loader(inputs, 0);
    std::set<int64_t> seen;
    int64_t padding = 0;
    for (int64_t step = 0; step < inputs.steps_per_epoch; ++step) {
      const StepSamples samples = loader->next();
      for (size_t m = 0; m < samples.micro.size(); ++m) {
        seen.insert(samples.indices[m].begin(), samples.indices[m].end());
        size_t longest = 0;
        for (const Sample& sample : samples.micro[m])
          longest = std::max(longest, sample.input_ids.size());
        for (const Sample& sample : samples.micro[m])
          padding += static_cast<int64_t>(longest - sample.input_ids.size());
      }
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(inputs.data.train->size()));
    return padding;
  }

  const test::TinyRun run_{40};
};

TEST_F(GroupByLength, PadsLess) {
  const int64_t plain = padding(recipe("plain", false)), grouped = padding(recipe("grouped"));
  EXPECT_GT(plain, 1000);
  EXPECT_LT(grouped, plain * 6 / 10);  // windows of two batches: more samples, less padding
}

TEST_F(GroupByLength, MeasuresOnlyWhenAsked) {
  EXPECT_TRUE(open_inputs(recipe("a", false)).data.lengths.empty());
  EXPECT_EQ(open_inputs(recipe("b")).data.lengths.size(), 40u);
}

TEST_F(GroupByLength, ResumesBitForBit) {
  const Recipe whole = recipe("whole"), parts = recipe("parts");
  ASSERT_EQ(train::train(whole), 0);
  ASSERT_EQ(train::train(parts, {.stop_after_step = 7}), 0);
  ASSERT_EQ(train::train(parts, {.resume = true, .stop_after_step = 13}), 0);
  ASSERT_EQ(train::train(parts, {.resume = true}), 0);
  EXPECT_TRUE(test::run_bytes(whole.output_dir, 20) == test::run_bytes(parts.output_dir, 20));
}

TEST_F(GroupByLength, IsPartOfTheRun) {
  Recipe changed = recipe("changed");
  ASSERT_EQ(train::train(changed, {.stop_after_step = 3}), 0);
  changed.data.group_by_length = false;
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "group_by_length",
                   train::train(changed, {.resume = true}));
}

}  // namespace
}  // namespace lft::group_by_length_test
