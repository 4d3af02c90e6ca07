// A run's state from the lines of its metrics.jsonl.
#include <gtest/gtest.h>

#include <cmath>

#include "src/report/run_metrics.h"
#include "support/temp_dir.h"

namespace lft::run_metrics_test {
using namespace lft::report;
namespace {

RunMetrics read(const std::string& text) {
  const test::TempDir dir;
  return read_run_metrics(dir.write("metrics.jsonl", text));
}

std::string step(int number, double loss) {
  return "{\"step\":" + std::to_string(number) + ",\"loss\":" + std::to_string(loss) +
         ",\"lr\":0.001,\"grad_norm\":2.0,\"tokens\":30,\"step_s\":0.5,\"eval_s\":1.0,"
         "\"checkpoint_s\":0.25}\n";
}

constexpr char kStart[] =
    "{\"event\":\"start\",\"step\":0,\"folder\":\"/home/me\",\"total_steps\":20}\n";

TEST(RunMetrics, HaveTheLastStepTheTimesAndTheEvaluations) {
  const RunMetrics run = read(
      kStart + step(1, 5) + step(2, 4) +
      "{\"event\":\"eval\",\"step\":2,\"eval_loss\":3.5,\"exact_match\":0.25,\"samples\":4}\n" +
      "{\"event\":\"step_skipped\",\"step\":3,\"reason\":\"overflow\"}\n");
  EXPECT_EQ(run.step, 3);
  EXPECT_EQ(run.total_steps, 20);
  EXPECT_EQ(run.folder, "/home/me");
  EXPECT_EQ(run.loss, 4);
  EXPECT_EQ(run.lr, 0.001);
  EXPECT_EQ(run.seconds, 3.5);  // 2 x (0.5 + 1 + 0.25)
  EXPECT_EQ(run.step_s, 0.5);
  EXPECT_EQ(run.tokens_per_s, 60);  // 30 tokens in 0.5 s
  ASSERT_EQ(run.evals.size(), 1u);
  EXPECT_EQ(run.evals[0].value("eval_loss"), 3.5);
  EXPECT_EQ(run.evals[0].value("exact_match"), 0.25);
  EXPECT_TRUE(std::isnan(run.evals[0].value("samples")));
  ASSERT_EQ(run.incidents.size(), 1u);
  EXPECT_EQ(run.incidents[0].what, "overflow");
  EXPECT_FALSE(run.done);
  EXPECT_EQ(run.failed, "");
}

TEST(RunMetrics, KnowHowTheRunEnded) {
  const std::string done =
      "{\"event\":\"done\",\"step\":2,\"saved_step\":1,\"eval_s\":2.0,\"checkpoint_s\":0.5}\n";
  const RunMetrics whole = read(kStart + step(1, 5) + done);
  EXPECT_TRUE(whole.done);
  EXPECT_EQ(whole.saved_step, 1);
  EXPECT_EQ(whole.seconds, 1.75 + 2.5);
  const std::string stopped = "{\"event\":\"stopped\",\"step\":1,\"reason\":\"the loss is NaN\"}\n";
  EXPECT_EQ(read(kStart + stopped).failed, "the loss is NaN");
  const RunMetrics again =
      read(kStart + stopped + "{\"event\":\"resume\",\"step\":1,\"total_steps\":40}\n");
  EXPECT_EQ(again.failed, "");
  EXPECT_EQ(again.total_steps, 40);
}

TEST(RunMetrics, TheIncidentThatEndedTheRunIsOneOfThem) {
  const RunMetrics run = read(kStart + step(1, 5) +
                              "{\"event\":\"stopped\",\"step\":2,\"reason\":\"the loss is not "
                              "finite\",\"incident\":\"out/incidents/step-2\"}\n");
  ASSERT_EQ(run.incidents.size(), 1u);
  EXPECT_EQ(run.incidents[0].step, 2);
  EXPECT_EQ(run.incidents[0].event, "stopped");
  EXPECT_EQ(run.incidents[0].what, "the loss is not finite");
  EXPECT_EQ(read(kStart + std::string("{\"event\":\"stopped\",\"step\":1,\"reason\":\"a file\"}\n"))
                .incidents.size(),
            0u);
}

TEST(RunMetrics, SkipWhatCannotBeReadAndTheLineThatIsBeingWritten) {
  const RunMetrics run = read(kStart + std::string("{\"step\": oops\n[1]\n7\n{\"step\":\"a\"}\n") +
                              step(1, 5) + "{\"step\":2,\"lo");
  EXPECT_EQ(run.step, 1);
  EXPECT_EQ(run.total_steps, 20);
  EXPECT_EQ(read_run_metrics("/nowhere/metrics.jsonl").step, 0);
}

}  // namespace
}  // namespace lft::run_metrics_test
