// metrics.jsonl: exact lines, numbers that round-trip, one write per line.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <sstream>

#include "kernels/common/error.h"
#include "src/io/files.h"
#include "src/report/metrics.h"
#include "tests/report/scratch.h"

namespace lft::metrics_test {
using namespace lft::io;
using namespace lft::report;
namespace {

TEST(Metrics, WritesTheStepLineWithExactlyItsKeysInOrder) {
  const test::Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  MetricsFile file(path, 0);
  file.step({.step = 3,
             .loss = 0.1,
             .lr = 2e-4,
             .grad_norm = std::nan(""),
             .loss_scale = 65536,
             .precision = "fp16",
             .supervised_tokens = 40,
             .tokens = 320,
             .tokens_per_s = 1.0 / 3,
             .step_s = std::numeric_limits<double>::infinity(),
             .eval_s = 1.5,
             .ids_hash = "0123456789abcdef",
             .run_hash = "fedcba9876543210"});
  EXPECT_EQ(read_file(path),
            "{\"step\":3,\"loss\":0.1,\"lr\":0.0002,\"grad_norm\":null,\"loss_scale\":65536.0,"
            "\"precision\":\"fp16\",\"supervised_tokens\":40,"
            "\"tokens\":320,\"tokens_per_s\":0.3333333333333333,\"step_s\":null,\"eval_s\":1.5,"
            "\"checkpoint_s\":0.0,\"ids_hash\":"
            "\"0123456789abcdef\",\"run_hash\":"
            "\"fedcba9876543210\"}\n");
  EXPECT_EQ(file.offset(), read_file(path).size());
}

TEST(Metrics, EventLinesCarryNameStepAndFields) {
  const test::Scratch scratch;
  MetricsFile file(scratch.path("m"), 0);
  file.event("eval", 10, {{"eval_loss", std::nan("")}, {"exact_match", 0.5}});
  file.event("resume", 0, Json());
  file.event("step_skipped", 11, {{"sample", "a\xff\n"}});
  EXPECT_EQ(read_file(scratch.path("m")),
            "{\"event\":\"eval\",\"step\":10,\"eval_loss\":null,\"exact_match\":0.5}\n{\"event\":"
            "\"resume\",\"step\":0}\n"
            "{\"event\":\"step_skipped\",\"step\":11,\"sample\":\"a\xef\xbf\xbd\\n\"}\n");
}

TEST(Metrics, DoublesRoundTrip) {
  const test::Scratch scratch;
  MetricsFile file(scratch.path("m"), 0);
  std::mt19937_64 rng(1);
  std::vector<double> want;
  for (int i = 0; i < 500; ++i) {
    const double value = std::ldexp(std::uniform_real_distribution<double>(-1, 1)(rng),
                                    static_cast<int>(rng() % 200) - 100);
    want.push_back(value);
    file.step({.step = i, .loss = value});
  }
  std::istringstream lines(read_file(scratch.path("m")));
  std::string line;
  for (const double value : want) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(Json::parse(line)["loss"].get<double>(), value);
  }
}

TEST(Metrics, AppendsOrStartsOver) {
  const test::Scratch scratch;
  MetricsFile(scratch.path("m"), 0).event("a", 1, Json());
  {
    MetricsFile file(scratch.path("m"), 23);
    EXPECT_EQ(file.offset(), 23u);
    file.event("b", 2, Json());
    EXPECT_EQ(file.offset(), 46u);
  }
  EXPECT_EQ(read_file(scratch.path("m")).size(), 46u);
  MetricsFile(scratch.path("m"), 0);
  EXPECT_EQ(read_file(scratch.path("m")), "");
}

TEST(Metrics, CutsBackToWhatACheckpointKnowsAndNeverPads) {
  const test::Scratch scratch;
  {
    MetricsFile file(scratch.path("m"), 0);
    for (int i = 1; i <= 3; ++i) file.event("a", i, Json());
  }
  EXPECT_EQ(MetricsFile(scratch.path("m"), 46).offset(), 46u);
  EXPECT_EQ(read_file(scratch.path("m")),
            "{\"event\":\"a\",\"step\":1}\n{\"event\":\"a\",\"step\":2}\n");
  std::filesystem::resize_file(scratch.path("m"), 40);  // a power cut in the second line
  EXPECT_EQ(MetricsFile(scratch.path("m"), 46).offset(), 23u);
  EXPECT_EQ(read_file(scratch.path("m")), "{\"event\":\"a\",\"step\":1}\n");
  std::filesystem::resize_file(scratch.path("m"), 5);
  EXPECT_EQ(MetricsFile(scratch.path("m"), 46).offset(), 0u);
}

TEST(Metrics, UnwritablePlaceIsAResourceError) {
  try {
    MetricsFile("/nonexistent/metrics.jsonl", 0);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kResource);
  }
}

}  // namespace
}  // namespace lft::metrics_test
