// The runs of a sweep: their names and settings, what is skipped, resumed and halved.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "runs/folders.h"
#include "src/io/files.h"
#include "src/runs/grid.h"
#include "src/runs/halving.h"
#include "src/runs/runs.h"
#include "src/runs/sweep.h"
#include "support/expect_error.h"

namespace lft::sweep_test {
using namespace lft::runs;
using namespace lft::test;
namespace {

TEST(Grid, ValuesAreSplitAtCommasOutsideBrackets) {
  EXPECT_EQ(read_axis("optim.lr=1e-4, 3e-4").values, (std::vector<std::string>{"1e-4", "3e-4"}));
  EXPECT_EQ(read_axis("lora.targets=[llm:q_proj, llm:k_proj],[llm:all-linear]").values,
            (std::vector<std::string>{"[llm:q_proj, llm:k_proj]", "[llm:all-linear]"}));
  EXPECT_EQ(read_axis("data.template='a,b',c").values, (std::vector<std::string>{"'a,b'", "c"}));
  for (const char* bad : {"lr", "=1", "lr=", "lr=1,,2", "lr=1,1", "output_dir=a,b"})
    EXPECT_LFT_ERROR(ErrorKind::kUsage, "", read_axis(bad));
}

TEST(Grid, AllCombinationsHaveNamesOfTheirOwn) {
  const std::vector<Trial> trials =
      trials_of({read_axis("optim.lr=1e-4,3e-4"), read_axis("lora.rank=8,32")});
  std::vector<std::string> names;
  for (const Trial& trial : trials) names.push_back(trial.name);
  EXPECT_EQ(names, (std::vector<std::string>{"lr-1e-4_rank-8", "lr-1e-4_rank-32", "lr-3e-4_rank-8",
                                             "lr-3e-4_rank-32"}));
  EXPECT_EQ(trials[2].sets, (std::vector<std::string>{"optim.lr=3e-4", "lora.rank=8"}));
  const std::vector<Trial> alike = trials_of({read_axis("data.template=a/b,a:b")});
  EXPECT_NE(alike[0].name, alike[1].name);
  for (const Trial& trial : trials_of({read_axis("data.eval=../../x," + std::string(300, 'y'))}))
    EXPECT_TRUE(trial.name.find('/') == std::string::npos && trial.name.size() < 120) << trial.name;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "a field is given twice",
                   trials_of({read_axis("lora.rank=8"), read_axis("lora.rank=16")}));
}

TEST(Halving, IsAtTheFirstEvaluationAfterAThird) {
  EXPECT_EQ(halving_step(30, 5), 10);
  EXPECT_EQ(halving_step(30, 4), 12);
  EXPECT_EQ(halving_step(31, 5), 15);
  EXPECT_EQ(halving_step(30, 40), 30) << "the run ends before";
  EXPECT_EQ(halving_step(1, 1), 1);
}

/// `lft train` without training: a run of 6 steps whose losses depend on its learning rate.
class SweepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    recipe::Recipe recipe = small_recipe(dir_.file("out"));
    recipe.train.max_steps = 6;
    file_ = dir_.write("recipe.yaml", dump_recipe(recipe));
  }

  int sweep(bool halve = false, const std::vector<std::string>& sets = {}) {
    started_.clear();
    const RunLft run = [&](const std::vector<std::string>& arguments) { return train(arguments); };
    return runs::sweep({.recipe = file_,
                        .sets = sets,
                        .axes = {read_axis("optim.lr=0.1,0.2,0.3")},
                        .out = {},
                        .halve = halve},
                       run);
  }

  int train(const std::vector<std::string>& arguments) {
    EXPECT_EQ(arguments[0], "train");
    EXPECT_EQ(arguments[1], file_);
    EXPECT_EQ(std::ranges::count(arguments, "--resume"), 1);
    std::vector<std::string> sets;
    for (size_t i = 0; i + 1 < arguments.size(); ++i)
      if (arguments[i] == "--set") sets.push_back(arguments[i + 1]);
    const recipe::Recipe recipe = recipe::read_recipe(file_, sets);
    const std::string name = recipe.output_dir.substr(recipe.output_dir.rfind('/') + 1);
    const bool third = arguments.back() == "--first-third";
    started_.push_back(name + (third ? " third" : ""));
    const int code = codes_.contains(name) ? codes_[name] : 0;
    std::string metrics = start_line(6);
    const int64_t last = code != 0 ? 1 : third ? 2 : 6;
    for (int64_t step = 1; step <= last; ++step) {
      metrics += step_line(step);
      // At step 2 the lowest rate leads; at the end the highest does.
      const double lr = recipe.optim.lr;
      if (step % 2 == 0) metrics += eval_line(step, step == 2 ? 2 + lr : 2 - lr);
    }
    if (last == 6) metrics += done_line(6, 6);
    write_run(dir_, "out-sweep/" + name, recipe, metrics);
    return code;
  }

  TempDir dir_;
  std::string file_;
  std::vector<std::string> started_;
  std::map<std::string, int> codes_;
};

using Names = std::vector<std::string>;

TEST_F(SweepTest, RunsEachOnceAndSkipsWhatIsDone) {
  codes_["lr-0.2"] = 130;
  EXPECT_EQ(sweep(), 130) << "Ctrl-C in a run";
  EXPECT_EQ(started_, (Names{"lr-0.1", "lr-0.2"}));
  codes_.clear();
  EXPECT_EQ(sweep(), 0);
  EXPECT_EQ(started_, (Names{"lr-0.2", "lr-0.3"}));
  EXPECT_EQ(sweep(), 0);
  EXPECT_EQ(started_, Names{});
  const std::vector<RunInfo> runs = find_runs(dir_.file("out-sweep"));
  EXPECT_EQ(best_run(runs, {}), 2u);
  EXPECT_EQ(differing_fields(runs)[1], (Fields{{"optim.lr", "0.2"}}));
}

TEST_F(SweepTest, AFailedRunEndsOnlyItselfAndIsTheExitStatus) {
  codes_["lr-0.1"] = 5;
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "1 of 3 runs of the sweep failed", sweep());
  EXPECT_EQ(started_, (Names{"lr-0.1", "lr-0.2", "lr-0.3"}));
  codes_["lr-0.1"] = 137;
  EXPECT_LFT_ERROR(ErrorKind::kResource, "1 of 3 runs", sweep());
  EXPECT_EQ(started_, Names{"lr-0.1"}) << "it is tried again";
}

TEST_F(SweepTest, HalvingStopsTheWorseHalfAfterAThird) {
  EXPECT_EQ(sweep(/*halve=*/true), 0);
  const Names expected = {"lr-0.1 third", "lr-0.2 third", "lr-0.3 third", "lr-0.1", "lr-0.2"};
  EXPECT_EQ(started_, expected);
  EXPECT_EQ(read_run(dir_.file("out-sweep/lr-0.3")).metrics.step, 2);
  EXPECT_EQ(sweep(/*halve=*/true), 0);
  EXPECT_EQ(started_, Names{}) << "the same half is left out again";
  EXPECT_EQ(sweep(), 0);
  EXPECT_EQ(started_, Names{"lr-0.3"}) << "without --halve it continues";
}

TEST_F(SweepTest, HalvingNeedsEvaluations) {
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "--halve compares runs by their evaluations",
                   sweep(true, {"train.eval_every_steps=0"}));
  EXPECT_EQ(started_, Names{});
}

TEST_F(SweepTest, EveryRecipeIsReadBeforeTheFirstRun) {
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "lora.rank", sweep(false, {"lora.rank=0"}));
  EXPECT_EQ(started_, Names{});
}

TEST_F(SweepTest, AFolderWithOtherSettingsIsRefused) {
  EXPECT_EQ(sweep(), 0);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "a run with other settings", sweep(false, {"lora.rank=4"}));
  EXPECT_EQ(started_, Names{});
  EXPECT_EQ(sweep(false, {"train.max_steps=8"}), 0);
  EXPECT_EQ(started_.size(), 3u) << "a longer run continues";
}

}  // namespace
}  // namespace lft::sweep_test
