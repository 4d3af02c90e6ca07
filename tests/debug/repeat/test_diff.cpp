// Where two runs diverge and why: samples, contents, schedule, precision, outcome or numbers; and
// runs that do not diverge.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "debug/names.h"
#include "src/base/text.h"
#include "src/debug/repeat/diff.h"
#include "src/debug/repeat/diff_lines.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"

namespace lft::test::diff_test {
namespace {

bool names(const std::vector<FieldDifference>& list, const std::string& key) {
  return std::any_of(list.begin(), list.end(),
                     [&](const FieldDifference& each) { return each.key == key; });
}

std::vector<std::string> keys(const std::vector<FieldDifference>& list) {
  std::vector<std::string> out;
  for (const FieldDifference& each : list) out.push_back(each.key);
  return out;
}

/// One run to compare with, shared by all tests of this file: 4 steps, epochs of 3.
class Diff : public ::testing::Test {
 protected:
  static Recipe base(const std::string& out) {
    Recipe recipe = files_->recipe(out);
    recipe.data.eval.clear();
    recipe.train.max_steps = 4;
    recipe.checkpoint.every_steps = 100;
    return recipe;
  }
  static void SetUpTestSuite() {
    files_ = new test::TinyRun(12);
    train_quietly(base("a"), {});
  }
  static void TearDownTestSuite() { delete files_; }

  static std::string train_quietly(const Recipe& recipe, const TrainOptions& options = {}) {
    ::testing::internal::CaptureStdout();
    const int code = train::train(recipe, options);
    ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(code, 0);
    return recipe.output_dir;
  }
  static std::string a() { return files_->dir().file("a"); }
  static std::string copy_of_a(const std::string& name) {
    fs::copy(a(), files_->dir().file(name), fs::copy_options::recursive);
    return files_->dir().file(name);
  }

  static test::TinyRun* files_;
};
test::TinyRun* Diff::files_ = nullptr;

TEST_F(Diff, ARepeatedRunDoesNotPart) {
  Recipe again = base("again");
  again.data.workers = 3;
  const RunDiff diff = diff_runs(a(), train_quietly(again));
  EXPECT_EQ(diff.parting, Parting::kNone) << parting_text(diff);
  EXPECT_EQ(diff.step, 0);
  EXPECT_EQ(diff.compared, 4);
  EXPECT_EQ(keys(diff.recipe), std::vector<std::string>{"data.workers"});
  EXPECT_TRUE(diff.inputs.empty());
  EXPECT_TRUE(diff.environment.empty());
  EXPECT_TRUE(diff.notes.empty());
  EXPECT_NE(join(diff_lines(diff), "\n").find("equal       in all 4 steps that both have"),
            std::string::npos);
}

TEST_F(Diff, AShorterRunIsComparedAsFarAsItGoes) {
  Recipe part = base("part");
  const std::string b = train_quietly(part, {.stop_after_step = 2});
  const RunDiff diff = diff_runs(a(), b);
  EXPECT_EQ(diff.step, 0);
  EXPECT_EQ(diff.compared, 2);
  EXPECT_EQ(diff.a.last_step, 4);
  EXPECT_EQ(diff.b.last_step, 2);
}

TEST_F(Diff, AnotherOrderPartsTheSamples) {
  Recipe other = base("unshuffled");
  other.data.shuffle = false;
  const RunDiff diff = diff_runs(a(), train_quietly(other));
  EXPECT_EQ(diff.parting, Parting::kSamples);
  EXPECT_EQ(diff.step, 1);
  EXPECT_TRUE(names(diff.recipe, "data.shuffle"));
  EXPECT_EQ(diff.fields.front().key, "ids_hash");
}

TEST_F(Diff, AnotherAnswerUnderTheSameIdsPartsTheContents) {
  const std::string rows = files_->dir().file("rows.json"), before = test::slurp(rows);
  Json changed = Json::parse(before);
  for (Json& row : changed) row["conversations"][1]["value"] = "something longer";
  files_->dir().write("rows.json", changed.dump());
  const std::string b = train_quietly(base("contents"));
  files_->dir().write("rows.json", before);
  const RunDiff diff = diff_runs(a(), b);
  EXPECT_EQ(diff.parting, Parting::kContents);
  EXPECT_EQ(diff.step, 1);
  EXPECT_EQ(keys(diff.inputs), std::vector<std::string>{"data"});
  EXPECT_FALSE(names(diff.fields, "ids_hash"));
}

TEST_F(Diff, AnotherScheduleIsNamedWhereItFirstShows) {
  Recipe other = base("linear");
  other.optim.schedule = "linear";
  other.optim.warmup_ratio = 0;
  Recipe cosine = base("cosine");
  cosine.optim.warmup_ratio = 0;
  const RunDiff diff = diff_runs(train_quietly(cosine), train_quietly(other));
  EXPECT_EQ(diff.parting, Parting::kSchedule);
  EXPECT_EQ(diff.step, 2);  // both start at the peak: the first step's rate is the same
  EXPECT_TRUE(names(diff.recipe, "optim.schedule"));
}

TEST_F(Diff, AnotherPrecisionIsTheCauseOfOtherLosses) {
  Recipe other = base("bf16");
  other.precision.compute = "bf16";
  const RunDiff diff = diff_runs(a(), train_quietly(other));
  EXPECT_EQ(diff.parting, Parting::kPrecision);
  EXPECT_EQ(diff.step, 1);
  EXPECT_TRUE(names(diff.fields, "loss"));
}

TEST_F(Diff, ASkippedStepPartsTheOutcome) {
  Recipe fp16 = base("fp16");
  fp16.precision.compute = "fp16";
  fp16.precision.loss_scale.init = 1024;
  Recipe skipping = fp16;
  skipping.output_dir = files_->dir().file("skipping");
  const std::string b =
      train_quietly(skipping, {.gradients_ready = [](int64_t step, Optimizer& optimizer) {
                      if (step == 3)
                        optimizer.slots().back().param.tensor.mutable_grad().fill_(
                            std::numeric_limits<float>::infinity());
                    }});
  const RunDiff diff = diff_runs(train_quietly(fp16), b);
  EXPECT_EQ(diff.parting, Parting::kOutcome);
  EXPECT_EQ(diff.step, 3);
  EXPECT_NE(parting_text(diff).find("nothing in A, \"step_skipped\" in B"), std::string::npos)
      << parting_text(diff);
}

TEST_F(Diff, AGradientThatDiffersPartsTheNumbersAtItsStep) {
  const std::string b =
      train_quietly(base("nudged"), {.gradients_ready = [](int64_t step, Optimizer& optimizer) {
                      if (step == 2)
                        optimizer.slots().back().param.tensor.mutable_grad().mul_(1.01);
                    }});
  const RunDiff diff = diff_runs(a(), b);
  EXPECT_EQ(diff.parting, Parting::kNumbers);
  EXPECT_EQ(diff.step, 2);
  EXPECT_FALSE(names(diff.fields, "loss"));
  EXPECT_EQ(diff.fields.front().key, "grad_norm");
  EXPECT_NE(
      parting_text(diff).find("step 2: the numbers part: the same loss, another gradient norm"),
      std::string::npos)
      << parting_text(diff);
}

TEST_F(Diff, AnUpdateThatDiffersPartsTheNextLoss) {
  const std::string b =
      train_quietly(base("moved"), {.gradients_ready = [](int64_t step, Optimizer& optimizer) {
                      if (step == 3) optimizer.slots().back().moment("exp_avg").add_(1);
                    }});
  const RunDiff diff = diff_runs(a(), b);
  EXPECT_EQ(diff.parting, Parting::kNumbers);
  EXPECT_EQ(diff.step, 4);
  EXPECT_NE(parting_text(diff).find("step 4: the numbers part: the same samples, another loss"),
            std::string::npos)
      << parting_text(diff);
}

TEST_F(Diff, RunsWithoutHashesAreComparedByTheirNumbers) {
  const std::string b = copy_of_a("old");
  std::ofstream metrics(b + "/metrics.jsonl", std::ios::trunc);
  for (Json line : test::metric_lines(a())) {
    line.erase("ids_hash");
    line.erase("run_hash");
    metrics << line.dump() << "\n";
  }
  metrics.close();
  const RunDiff diff = diff_runs(a(), b);
  EXPECT_EQ(diff.parting, Parting::kNone) << parting_text(diff);
  EXPECT_EQ(diff.notes,
            std::vector<std::string>{"a run has no hashes: its samples cannot be compared"});
}

TEST_F(Diff, EveryFieldOfTheEnvironmentCounts) {
  const std::string b = copy_of_a("elsewhere");
  Json environment = Json::parse(test::slurp(b + "/environment.json"));
  environment["cpu"] = "another processor";
  environment["determinism"]["cublas_workspace"] = "";
  std::ofstream(b + "/environment.json") << environment.dump();
  const RunDiff diff = diff_runs(a(), b);
  EXPECT_EQ(keys(diff.environment),
            (std::vector<std::string>{"cpu", "determinism.cublas_workspace"}));
  EXPECT_EQ(diff.step, 0);
}

TEST_F(Diff, WhatCannotBeReadIsANoteAndNoStepInCommonIsAnError) {
  const std::string b = copy_of_a("broken");
  fs::remove(b + "/recipe.resolved.yaml");
  fs::remove_all(b + "/checkpoints");
  std::ofstream(b + "/environment.json") << "{";
  EXPECT_EQ(diff_runs(a(), b).notes.size(), 3u);
  std::ofstream(b + "/metrics.jsonl", std::ios::app)
      << "{\"step\": 5, \"lo";  // truncated by a power failure: left out
  EXPECT_EQ(diff_runs(a(), b).compared, 4);
  std::ofstream(b + "/metrics.jsonl", std::ios::app) << "\n";
  EXPECT_LFT_ERROR(ErrorKind::kInput,
                   "broken/metrics.jsonl:" + std::to_string(test::metric_lines(a()).size() + 1),
                   diff_runs(a(), b));
  std::ofstream(b + "/metrics.jsonl", std::ios::trunc) << "[1]\n";
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not a line of metrics", diff_runs(a(), b));
  std::ofstream(b + "/metrics.jsonl", std::ios::trunc) << "{\"event\":\"checkpoint\",\"step\":0}\n";
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no step in common", diff_runs(a(), b));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no metrics.jsonl",
                   diff_runs(a(), files_->dir().file("images")));
}

}  // namespace
}  // namespace lft::test::diff_test
