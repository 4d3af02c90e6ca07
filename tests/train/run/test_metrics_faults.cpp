// Messages of a resumed run if metrics.jsonl was changed since.
#include <gtest/gtest.h>

#include <cmath>

#include "src/io/json.h"
#include "src/train/record/run_hash.h"
#include "src/train/run/trainer.h"
#include "train/run_files.h"
#include "train/spoil.h"

namespace lft::metrics_check_test {
using namespace lft::recipe;
using namespace lft::train;
namespace {

class Metrics : public ::testing::Test {
 protected:
  Metrics() : recipe_(run_.recipe("out")) {
    recipe_.data.eval.clear();
    recipe_.precision.compute = "bf16";
    // Steps of every kind: a non-finite one, and the FP32 steps after it.
    EXPECT_EQ(train::train(recipe_, {.gradients_ready = test::spoil({3}, INFINITY)}), 0);
    path_ = recipe_.output_dir + "/metrics.jsonl";
    std::istringstream text(test::slurp(path_));
    for (std::string line; std::getline(text, line);) lines_.push_back(line);
  }
  /// The number, from 1, of the line of a step.
  size_t line_of(int64_t step) const {
    for (size_t i = 0; i < lines_.size(); ++i) {
      const Json line = Json::parse(lines_[i]);
      if (!line.contains("event") && line["step"] == step) return i + 1;
    }
    return 0;
  }
  std::vector<std::string> faults() {
    std::string text;
    for (const std::string& line : lines_) text += line + "\n";
    run_.dir().write("out/metrics.jsonl", text);
    return metrics_faults(path_, text.size());
  }

  using Json = io::Json;
  test::TinyRun run_;
  Recipe recipe_;
  std::string path_;
  std::vector<std::string> lines_;
};

TEST_F(Metrics, AsTheRunWroteThemHaveNoFault) {
  EXPECT_TRUE(faults().empty());
  EXPECT_TRUE(metrics_faults(path_ + "-none", 9).empty());
}

TEST_F(Metrics, ALineThatCannotBeReadIsNamedAndNothingElse) {
  const size_t at = line_of(2);
  lines_[at - 1][0] = '\0';
  EXPECT_EQ(faults(), std::vector<std::string>{"line " + std::to_string(at) + ": cannot be read"});
}

TEST_F(Metrics, ALossThatWasChangedDoesNotFitItsHash) {
  const size_t at = line_of(5);
  Json line = Json::parse(lines_[at - 1]);
  line["loss"] = line["loss"].get<double>() * (1 + 1e-15);
  lines_[at - 1] = line.dump();
  ASSERT_EQ(faults().size(), 1u);
  EXPECT_NE(faults()[0].find("line " + std::to_string(at) + ": step 5 has another loss"),
            std::string::npos);
}

TEST_F(Metrics, AStepThatIsGoneIsNamedAtTheNext) {
  lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(line_of(2)) - 1);
  ASSERT_EQ(faults().size(), 1u);
  EXPECT_NE(faults()[0].find("step 2 is missing before it"), std::string::npos) << faults()[0];
}

TEST_F(Metrics, TheLossByImageStandsInTheMetrics) {
  const Json event = test::events(recipe_.output_dir, "images").at(0);
  EXPECT_EQ(event["step"], 6);
  for (const char* key : {"own_loss", "other_loss", "grey_loss"}) {
    EXPECT_TRUE(std::isfinite(event[key].get<double>())) << key;
  }
  EXPECT_NE(event["own_loss"], event["grey_loss"]);
  EXPECT_TRUE(test::events(recipe_.output_dir, "images_unseen").empty());
  EXPECT_NE(
      test::slurp(recipe_.output_dir + "/report.html").find("loss with own / other / grey image"),
      std::string::npos);
}

TEST_F(Metrics, AResumedRunSaysItOnce) {
  recipe_.train.max_steps = 7;
  lines_[line_of(2) - 1][3] = '\x01';
  faults();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(train::train(recipe_, {.resume = true}), 0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("metrics.jsonl is damaged, the run itself is whole: line "),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace lft::metrics_check_test
