// lft debug subset: the unchanged recipe on the first rows; its report equals the run's
// records.
#include <gtest/gtest.h>

#include <cmath>

#include "debug/names.h"
#include "src/base/text.h"
#include "src/data/dataset.h"
#include "src/data/prepared_write.h"
#include "src/debug/isolate/subset.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"

namespace lft::test::subset_test {
namespace {

TEST(Subset, IsTheRunOverAFileOfTheFirstRows) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.train.epochs = 2;
  recipe.train.max_steps = 0;
  const SubsetReport report = train_subset(recipe, 6);
  ASSERT_EQ(report.code, 0);
  EXPECT_EQ(report.output_dir, recipe.output_dir + "/debug-subset-6");
  EXPECT_EQ(report.rows, 6);
  EXPECT_EQ(report.steps, 4);  // two epochs of 4 + 2 rows
  EXPECT_EQ(report.held_out, recipe.data.eval);

  nlohmann::json rows = nlohmann::json::parse(test::slurp(recipe.data.train.path));
  rows.erase(rows.begin() + 6, rows.end());
  recipe.data.train = run.dir().write("six.json", rows.dump());
  recipe.output_dir = run.dir().file("six");
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_EQ(loss_log(report.output_dir), loss_log(recipe.output_dir));  // the same bits
  EXPECT_EQ(test::slurp(report.output_dir + "/adapter/adapter_model.safetensors"),
            test::slurp(recipe.output_dir + "/adapter/adapter_model.safetensors"));

  const std::vector<Json> steps = step_lines(recipe.output_dir);
  EXPECT_EQ(report.first, steps[0]["loss"].get<double>());
  const double n2 = steps[2]["supervised_tokens"].get<double>(),
               n3 = steps[3]["supervised_tokens"].get<double>();
  EXPECT_NEAR(
      report.last,
      (steps[2]["loss"].get<double>() * n2 + steps[3]["loss"].get<double>() * n3) / (n2 + n3),
      1e-12);
  EXPECT_EQ(report.held_out_last,
            events(recipe.output_dir, "eval").back()["eval_loss"].get<double>());
}

TEST(Subset, KeepsTheRowsThatTheRecipeHoldsOut) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.data.eval_share = 0.25;
  recipe.train.max_steps = 2;
  const SubsetReport report = train_subset(recipe, 4);
  EXPECT_EQ(report.held_out, "data.eval_share");
  EXPECT_EQ(events(report.output_dir, "eval").back()["samples"], 3);
}

TEST(Subset, WithoutHeldOutRowsTheNextOnesServe) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.train.max_steps = 2;
  const SubsetReport report = train_subset(recipe, 8);
  EXPECT_EQ(report.held_out, "the 4 rows behind them");
  EXPECT_TRUE(std::isfinite(report.held_out_last));
  EXPECT_EQ(events(report.output_dir, "eval").back()["samples"], 4);
  const std::string text = join(subset_lines(report), "\n");
  EXPECT_NE(text.find("8 rows, 2 steps"), std::string::npos) << text;
  EXPECT_NE(text.find("(the 4 rows behind them)"), std::string::npos) << text;
}

TEST(Subset, MoreRowsThanThereAreIsAllOfThem) {
  const test::TinyRun run(5);
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.train.max_steps = 2;
  const SubsetReport report = train_subset(recipe, 100);
  EXPECT_EQ(report.rows, 5);
  EXPECT_EQ(report.held_out, "");
  EXPECT_TRUE(std::isnan(report.held_out_last));
  EXPECT_NE(join(subset_lines(report)).find("no row is left"), std::string::npos);
}

TEST(Subset, PreparedDataHasFirstRowsToo) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.train.max_steps = 3;
  const SubsetReport plain = train_subset(recipe, 5);
  {
    const RunInputs inputs = open_inputs(recipe);
    prepare_dataset(*inputs.data.train, inputs.data.encode, run.dir().file("prepared"));
  }
  recipe.data.train = run.dir().file("prepared");
  recipe.output_dir = run.dir().file("out2");
  const SubsetReport prepared = train_subset(recipe, 5);
  EXPECT_EQ(loss_log(prepared.output_dir), loss_log(plain.output_dir));
}

TEST(Subset, TrainsErrorsAreItsErrors) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.train.max_steps = 2;
  ASSERT_EQ(train_subset(recipe, 4).code, 0);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "output_dir contains a run", train_subset(recipe, 4));
  recipe.output_dir = run.dir().file("out2");
  recipe.optim.lr = 0;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "optim.lr", train_subset(recipe, 4));
}

}  // namespace
}  // namespace lft::test::subset_test
