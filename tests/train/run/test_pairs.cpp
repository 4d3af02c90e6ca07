// Whole runs on preference pairs: what an objective promises of steps, evaluations and references.
#include <gtest/gtest.h>

#include <cmath>

#include "src/data/prepared_write.h"
#include "src/train/inputs/recipe_encoding.h"
#include "src/train/run/pairs_judged.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/label_rows.h"
#include "train/pair_rows.h"
#include "train/run_files.h"

namespace lft::pairs_test {
using namespace lft::recipe;
using namespace lft::train;
namespace {

const char* const kFigures[] = {"rewards_chosen", "rewards_rejected", "reward_accuracy",
                                "reward_margin",  "logps_chosen",     "logps_rejected"};

class Pairs : public ::testing::Test {
 protected:
  Recipe recipe(const std::string& out, const std::string& objective = "dpo") const {
    Recipe recipe = run_.recipe(out);
    recipe.data.train = recipe.data.eval = pairs_;
    recipe.objective.name = objective;
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
      for (const std::string key : {"loss", "rewards_chosen", "rewards_rejected", "reward_margin",
                                    "logps_chosen", "logps_rejected", "grad_norm"})
        EXPECT_NEAR(a[i][key].get<double>(), b[i][key].get<double>(),
                    2e-5 * (1 + std::abs(b[i][key].get<double>())))
            << key << " of step " << i + 1;
    }
  }

  const test::TinyRun run_;
  const std::string pairs_ = test::write_pairs(run_);
};

TEST_F(Pairs, ARunBeginsAtItsReferenceAndLearnsToPrefer) {
  Recipe recipe = this->recipe("out");
  recipe.train.max_steps = 20;
  const std::vector<io::Json> lines = steps(recipe);
  ASSERT_EQ(lines.size(), 20u);
  EXPECT_NEAR(lines[0]["loss"].get<double>(), std::log(2.0), 1e-5);
  EXPECT_NEAR(lines[0]["reward_margin"].get<double>(), 0, 1e-4);
  for (const char* name : kFigures) EXPECT_TRUE(lines[0].contains(name)) << name;
  EXPECT_LT(lines[19]["loss"].get<double>(), 0.5);
  EXPECT_EQ(lines[19]["reward_accuracy"], 1);
  EXPECT_GT(lines[19]["reward_margin"].get<double>(), 0.5);
}

TEST_F(Pairs, TheSplitIntoPassesAndPaddingChangeNoFigure) {
  for (const char* objective : {"dpo", "simpo"}) {
    Recipe whole = recipe(std::string("whole-") + objective, objective),
           one = recipe(std::string("one-") + objective, objective),
           packed = recipe(std::string("packed-") + objective, objective);
    one.train.batch_size = 1;
    one.train.grad_accum = 4;
    packed.train.max_tokens_per_step = 4096;
    for (Recipe* each : {&whole, &one, &packed}) {
      each->data.max_tokens = 512;
      each->lora.dropout = 0;
      each->train.max_steps = 2;  // the rate of the first is 0: both have the initial weights
    }
    const std::vector<io::Json> want = steps(whole);
    expect_near(steps(one), want);
    expect_near(steps(packed), want);
  }
}

TEST_F(Pairs, AResumedRunAndPreparedDataGiveTheSameBits) {
  const Recipe whole = recipe("whole"), parts = recipe("parts");
  ASSERT_EQ(train::train(whole), 0);
  ASSERT_EQ(train::train(parts, {.stop_after_step = 2}), 0);
  ASSERT_EQ(train::train(parts, {.resume = true}), 0);
  EXPECT_TRUE(test::run_bytes(whole.output_dir, 6) == test::run_bytes(parts.output_dir, 6));

  Recipe prepared = recipe("prepared");
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

TEST_F(Pairs, AKeptReferenceIsTheComputedOneAndADamagedOneIsComputedAgain) {
  const Recipe recipe = this->recipe("out");
  ASSERT_EQ(train::train(recipe, {.stop_after_step = 2}), 0);
  const std::string path = recipe.output_dir + "/index/train.reference", kept = test::slurp(path);
  ASSERT_FALSE(kept.empty());
  io::write_file_atomic(path, kept.substr(0, kept.size() / 2));
  ASSERT_EQ(train::train(recipe, {.resume = true}), 0);
  const Recipe whole = this->recipe("whole");
  ASSERT_EQ(train::train(whole), 0);
  EXPECT_EQ(test::loss_log(recipe.output_dir), test::loss_log(whole.output_dir));
}

/// The adapter of lora.init_from is the reference, also of a resumed run that computes it again.
TEST_F(Pairs, AResumedRunHasTheReferenceOfItsInitialAdapter) {
  Recipe first = run_.recipe("first");
  ASSERT_EQ(train::train(first), 0);
  const std::string labels = test::write_labels(run_);
  for (const char* objective : {"dpo", "kto"}) {
    Recipe whole = recipe(std::string("whole-") + objective, objective),
           parts = recipe(std::string("parts-") + objective, objective);
    for (Recipe* each : {&whole, &parts}) {
      each->lora.init_from = first.output_dir + "/adapter";
      if (each->objective.name == ObjectiveName::kKto) each->data.train = each->data.eval = labels;
    }
    ASSERT_EQ(train::train(whole), 0);
    ASSERT_EQ(train::train(parts, {.stop_after_step = 2}), 0);
    ASSERT_TRUE(std::filesystem::remove(parts.output_dir + "/index/train.reference"));
    ASSERT_EQ(train::train(parts, {.resume = true}), 0);
    EXPECT_TRUE(test::run_bytes(whole.output_dir, 6) == test::run_bytes(parts.output_dir, 6))
        << objective;
  }
}

TEST_F(Pairs, EvaluationsHaveTheFiguresAndTheBestAccuracyIsKept) {
  Recipe recipe = this->recipe("out");
  recipe.train.eval_every_steps = 2;
  recipe.train.keep_best = "reward_accuracy";
  ASSERT_EQ(train::train(recipe), 0);
  const std::vector<io::Json> evals = test::events(recipe.output_dir, "eval");
  ASSERT_FALSE(evals.empty());
  for (const char* name : kFigures) EXPECT_TRUE(evals.back().contains(name)) << name;
  EXPECT_EQ(evals.back()["samples"], 12);
  EXPECT_FALSE(test::events(recipe.output_dir, "best").empty());
}

/// At the reference both rewards of each pair are 0 up to rounding, and ties count as hits.
TEST_F(Pairs, AnEvaluationBeforeTheFirstUpdateIsNotTheBest) {
  Recipe recipe = this->recipe("out");
  recipe.train.eval_every_steps = 1;
  recipe.train.max_steps = 3;
  recipe.optim.warmup_ratio = 0.34;  // the first step has a learning rate of 0
  recipe.train.keep_best = "reward_accuracy";
  ASSERT_EQ(train::train(recipe), 0);
  const std::vector<io::Json> evals = test::events(recipe.output_dir, "eval");
  ASSERT_EQ(evals.size(), 3u);
  EXPECT_NEAR(evals[0]["rewards_chosen"].get<double>(), 0, 1e-6);  // up to rounding
  const std::vector<io::Json> best = test::events(recipe.output_dir, "best");
  ASSERT_FALSE(best.empty());
  EXPECT_EQ(best[0]["step"], 2);
}

TEST_F(Pairs, TheReportShowsPairsBeforeAndAfterTraining) {
  for (const std::string objective : {"dpo", "simpo"}) {
    Recipe recipe = this->recipe("page-" + objective, objective);
    recipe.train.max_steps = 20;
    recipe.train.eval_every_steps = 10;
    recipe.log.answers = 8;
    ASSERT_EQ(train::train(recipe), 0);
    const std::string html = test::slurp(recipe.output_dir + "/report.html"),
                      start = "id=\"data\">";
    const size_t begin = html.find(start) + start.size();
    const io::Json page =
        io::Json::parse(html.substr(begin, html.find("</script>", begin) - begin));
    ASSERT_EQ(page["answers"].size(), 8u);
    for (const io::Json& one : page["answers"]) {
      EXPECT_TRUE(one["image"].get<std::string>().starts_with("data:image/png"));
      EXPECT_NE(one["pair"]["rejected"], one["reference"]);
      const io::Json& rows = one["pair"]["rows"];
      ASSERT_EQ(rows.size(), 3u) << rows;
      EXPECT_EQ(rows[0][3].is_null(), objective == "dpo") << "a margin to the reference is 0";
      EXPECT_NE(rows[0][1], rows[2][1]);
      EXPECT_EQ(one["right"], rows[2][3].get<double>() > 0);
      // dpo's margin is beta times the difference of the log ratios, simpo's of the
      // log-probabilities.
      const auto gap = [](const io::Json& row) {
        return row[1].get<double>() - row[2].get<double>();
      };
      const double margin =
          objective == "dpo" ? 0.1 * (gap(rows[2]) - gap(rows[0])) : 2 * gap(rows[2]);
      EXPECT_NEAR(rows[2][3].get<double>(), margin, 1e-4 * (1 + std::abs(margin)));
    }
    // The rate of step 1 is 0: the first two steps of dpo are at the reference, where no accuracy
    // has a meaning.
    for (const std::string name : kFigures)
      EXPECT_EQ(page["series"][name].size(),
                name == "reward_accuracy" && objective == "dpo" ? 18u : 20u)
          << name;
    if (objective == "dpo") {
      EXPECT_EQ(page["verdict"]["kind"], "learnt") << page["verdict"];
    }
    EXPECT_EQ(page["answers_of"], "held-out rows");
  }
}

TEST_F(Pairs, TheFirstLossIsKnownBeforeIt) {
  struct Case {
    const char *name, *line;
    double smoothing = 0, sft = 0, beta = 0;
  };
  for (const Case& each : std::vector<Case>{
           {"dpo", "first loss expected: 0.6931, of dpo at its reference"},
           {"dpo", "first loss expected: 0.6931, of dpo at its reference", 0.2},
           {"dpo",
            "first loss expected: 0.6931, of dpo at its reference, plus 0.5 times the chosen "
            "answers' loss per token",
            0, 0.5},
           {"ipo", "first loss expected: 25.0000, of ipo at its reference"},
           {"ipo", "first loss expected: 1.0000, of ipo at its reference", 0, 0, 0.5},
           {"hinge", "first loss expected: 1.0000, of hinge at its reference"},
           {"apo_zero", "first loss expected: 1.0000, of apo_zero at its reference"},
           {"orpo", "first loss expected: that of the model, as orpo has no reference"},
           {"sft", ""}}) {
    Recipe recipe = this->recipe("out", each.name);
    recipe.objective.label_smoothing = each.smoothing;
    recipe.objective.sft_weight = each.sft;
    recipe.objective.beta = each.beta;
    if (std::string(each.name) == "sft") {
      const Recipe single = run_.recipe("out");
      recipe.data.train = single.data.train;
      recipe.data.eval = single.data.eval;
    }
    const train::Run run = make_run(open_inputs(recipe));
    EXPECT_EQ(describe_pairs_start(run), each.line);
  }
  Recipe recipe = this->recipe("out");
  train::Run run = make_run(open_inputs(recipe));
  EXPECT_FALSE(judge_pairs_start(run, std::log(2.0)));
  const auto other = judge_pairs_start(run, 0.75);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->found, "0.7500");
  run.state.compute = at::kBFloat16;
  EXPECT_FALSE(judge_pairs_start(run, 0.71)) << "within the rounding of bf16";
  EXPECT_TRUE(judge_pairs_start(run, 0.75));
  // Dropout changes the first loss only where the initial update is not 0.
  for (const auto& [variant, dropout, judged] : std::vector<std::tuple<const char*, double, bool>>{
           {"lora", 0.3, true}, {"pissa", 0.3, false}, {"pissa", 0, true}}) {
    recipe.lora.variant = variant;
    recipe.lora.dropout = dropout;
    EXPECT_EQ(judge_pairs_start(make_run(open_inputs(recipe)), 0.75).has_value(), judged)
        << variant << " " << dropout;
  }
}

TEST_F(Pairs, WhatCannotBeLearntIsRefused) {
  Recipe recipe = this->recipe("out");
  io::Json rows = io::Json::parse(test::slurp(pairs_));
  for (io::Json& row : rows) row["rejected"] = row["chosen"];
  recipe.data.train = run_.dir().write("equal.json", rows.dump());
  EXPECT_LFT_ERROR(ErrorKind::kInput, "all equal", train::train(recipe));
  rows[5]["rejected"]["value"] = "another";
  run_.dir().write("equal.json", rows.dump());
  EXPECT_EQ(train::train(recipe), 0);

  Recipe narrow = this->recipe("narrow");
  narrow.data.max_tokens = 128;
  narrow.train.max_tokens_per_step = 200;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "256", train::train(narrow));
}

std::vector<double> line(double from, double to, double scatter = 0) {
  std::vector<double> values;
  for (int i = 0; i < 30; ++i)
    values.push_back(from + (to - from) * i / 29 + scatter * std::sin(2.4 * i));
  return values;
}

TEST(PairsLearnt, NameDisplacementAndAGuess) {
  const auto kinds = [](const std::map<std::string, std::vector<double>>& steps) {
    std::string found;
    for (const PairWarning& warning : judge_pairs(steps, "here")) found += warning.kind + " ";
    return found;
  };
  EXPECT_EQ(kinds({{"reward_margin", line(0, 1, 0.1)},
                   {"rewards_chosen", line(0, -1, 0.1)},
                   {"rewards_rejected", line(0, -2, 0.1)},
                   {"reward_accuracy", line(0.6, 0.9, 0.05)}}),
            "likelihood_displacement ");
  EXPECT_EQ(kinds({{"reward_margin", line(0, 2, 0.1)},
                   {"rewards_chosen", line(0, 1, 0.1)},
                   {"rewards_rejected", line(0, -1, 0.1)},
                   {"reward_accuracy", line(0.6, 0.9, 0.05)}}),
            "");
  EXPECT_EQ(kinds({{"reward_margin", line(0, 0, 0.1)},
                   {"rewards_chosen", line(0, 0, 0.1)},
                   {"rewards_rejected", line(0, 0, 0.1)},
                   {"reward_accuracy", line(0.5, 0.5, 0.2)}}),
            "accuracy_at_half ");
  EXPECT_EQ(kinds({{"reward_margin", {0, 1}}}), "");
}

}  // namespace
}  // namespace lft::pairs_test
