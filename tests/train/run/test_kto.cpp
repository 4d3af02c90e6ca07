// Whole runs of KTO: what the objective promises of steps, evaluations and its KL divergence.
#include <gtest/gtest.h>

#include <cmath>

#include "src/data/prepared_write.h"
#include "src/train/inputs/recipe_encoding.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/label_rows.h"
#include "train/run_files.h"

namespace lft::kto_test {
using namespace lft::recipe;
using namespace lft::train;
namespace {

const char* const kFigures[] = {"rewards_chosen", "rewards_rejected", "reward_margin",
                                "logps_chosen",   "logps_rejected",   "kl"};

class Kto : public ::testing::Test {
 protected:
  Recipe recipe(const std::string& out) const {
    Recipe recipe = run_.recipe(out);
    recipe.data.train = recipe.data.eval = labels_;
    recipe.objective.name = "kto";
    recipe.lora.dropout = 0;
    return recipe;
  }
  std::vector<io::Json> steps(const Recipe& recipe) const {
    EXPECT_EQ(train::train(recipe), 0);
    return test::step_lines(recipe.output_dir);
  }
  /// Equal within the rounding of sums of a few hundred float32 terms.
  static void expect_near(const std::vector<io::Json>& a, const std::vector<io::Json>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      for (const std::string key : {"loss", "grad_norm", "rewards_chosen", "logps_chosen", "kl"})
        EXPECT_NEAR(a[i][key].get<double>(), b[i][key].get<double>(),
                    2e-5 * (1 + std::abs(b[i][key].get<double>())))
            << key << " of step " << i + 1;
    }
  }

  const test::TinyRun run_;
  const std::string labels_ = test::write_labels(run_);
};

TEST_F(Kto, ARunBeginsAtItsReferenceAndLearnsTheLabels) {
  Recipe recipe = this->recipe("out");
  recipe.train.max_steps = 20;
  recipe.objective.undesirable_weight = 0.5;
  const std::vector<io::Json> lines = steps(recipe);
  ASSERT_EQ(lines.size(), 20u);
  for (const char* name : kFigures) EXPECT_TRUE(lines[0].contains(name)) << name;
  EXPECT_NEAR(lines[0]["kl"].get<double>(), 0, 1e-4);
  EXPECT_NEAR(lines[0]["reward_margin"].get<double>(), 0, 1e-4);
  EXPECT_FALSE(lines[0].contains("reward_accuracy"));
  EXPECT_GT(lines[19]["reward_margin"].get<double>(), 0.2);
  EXPECT_LT(lines[19]["loss"].get<double>(), 0.8 * lines[0]["loss"].get<double>());
}

TEST_F(Kto, TheFirstLossIsHalfTheMeanWeight) {
  const std::vector<io::Json> lines = steps(recipe("out"));
  EXPECT_NEAR(lines[0]["loss"].get<double>(), 0.5, 1e-5);
}

TEST_F(Kto, TheSplitIntoPassesAndPaddingChangeNoFigure) {
  Recipe whole = recipe("whole"), one = recipe("one"), packed = recipe("packed");
  one.train.batch_size = 1;
  one.train.grad_accum = 4;
  packed.train.max_tokens_per_step = 4096;
  for (Recipe* each : {&whole, &one, &packed}) {
    each->data.max_tokens = 512;
    each->train.max_steps = 3;
  }
  const std::vector<io::Json> want = steps(whole);
  expect_near(steps(one), want);
  expect_near(steps(packed), want);
}

TEST_F(Kto, AResumedRunAndPreparedDataGiveTheSameBits) {
  Recipe whole = recipe("whole"), parts = recipe("parts");
  for (Recipe* each : {&whole, &parts}) {
    each->lora.dropout = 0.1;
    each->train.eval_every_steps = 2;
  }
  ASSERT_EQ(train::train(whole), 0);
  ASSERT_EQ(train::train(parts, {.stop_after_step = 2}), 0);
  ASSERT_EQ(train::train(parts, {.resume = true}), 0);
  EXPECT_TRUE(test::run_bytes(whole.output_dir, 6) == test::run_bytes(parts.output_dir, 6));

  Recipe prepared = whole;
  prepared.output_dir = run_.dir().file("prepared");
  const auto [tokenizer, options] = recipe_encoding(prepared);
  const auto rows = open_train(prepared, *tokenizer, options);
  data::prepare_dataset(*rows, options, run_.dir().file("shards"));
  prepared.data.train = run_.dir().file("shards");
  ASSERT_EQ(train::train(prepared), 0);
  EXPECT_EQ(test::loss_log(prepared.output_dir), test::loss_log(whole.output_dir));
  prepared.output_dir = run_.dir().file("single");
  prepared.objective.name = "sft";
  EXPECT_LFT_ERROR(ErrorKind::kInput, "made for other settings", train::train(prepared));
}

/// The evaluation after step 7 has the weights that step 8 begins with, and data.eval in the order
/// of data.train without shuffling has its global batches. Its references were computed before
/// step 1, those of the step with the initial values in place of the current ones.
TEST_F(Kto, AnEvaluationTakesTheGlobalBatchesOfTraining) {
  Recipe recipe = this->recipe("out");
  recipe.data.shuffle = false;
  recipe.train.batch_size = 2;
  recipe.train.grad_accum = 6;
  recipe.train.max_steps = 8;
  recipe.train.eval_every_steps = 7;
  recipe.train.keep_best = "eval_loss";
  const std::vector<io::Json> lines = steps(recipe);
  const std::vector<io::Json> evals = test::events(recipe.output_dir, "eval");
  const io::Json& after = evals.front();
  ASSERT_EQ(after["step"], 7);
  EXPECT_NEAR(after["eval_loss"].get<double>(), lines[7]["loss"].get<double>(), 1e-5);
  for (const char* name : kFigures)
    EXPECT_NEAR(after[name].get<double>(), lines[7][name].get<double>(),
                2e-5 * (1 + std::abs(lines[7][name].get<double>())))
        << name;
  EXPECT_GT(lines[7]["kl"].get<double>() + std::abs(lines[7]["reward_margin"].get<double>()), 1e-4);
}

TEST_F(Kto, StepsOfOneRowAreRefused) {
  Recipe single = recipe("single");
  single.train.batch_size = single.train.grad_accum = 1;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "a step of one row", train::train(single));
  Recipe last = recipe("last");
  last.train.batch_size = 11;
  last.train.grad_accum = 1;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "12 rows in steps of 11", train::train(last));
}

TEST_F(Kto, ARowWithoutALabelAndAPairAreRefused) {
  Recipe recipe = this->recipe("out");
  recipe.data.train = run_.dir().file("rows.json");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "without a label", train::train(recipe));
}

}  // namespace
}  // namespace lft::kto_test
