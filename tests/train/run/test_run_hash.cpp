// The rolling hash against values from Python's hashlib, and over the steps of a run.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/base/hash.h"
#include "src/train/record/run_hash.h"
#include "src/train/run/trainer.h"
#include "src/train/step/global_batch.h"
#include "train/run_files.h"

namespace lft::run_hash_test {
using namespace lft::data;
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

/// The ids of a step's samples, in the order of its micro-batches.
std::vector<std::string> ids_of(const std::vector<std::vector<std::string>>& ids) {
  StepSamples samples;
  for (const auto& micro : ids) {
    samples.micro.emplace_back();
    for (const std::string& id : micro)
      samples.micro.back().push_back({.id = id, .input_ids = {}, .labels = {}, .images = {}});
  }
  return global_batch_of(samples).ids;
}

TEST(RunHash, IsTheFirstDigitsOfASha256OverHashIdsAndBits) {
  // ids = sha256(json.dumps(ids, ensure_ascii=False, separators=(",", ":"))); run = sha256(run +
  // ids + struct.pack(">d", loss).hex())
  const std::vector<std::string> samples = ids_of({{"row1", "a \"b\"\n"}, {"\xc3\xa9"}});
  const StepHashes first = fold_step(first_run_hash(), samples, 1.25);
  EXPECT_EQ(first.ids, "a19ee3222ae8af0c");
  EXPECT_EQ(first.run, "a293510382a32b8c");
  const StepHashes second = fold_step(first.run, samples, -0.0);
  EXPECT_EQ(second.ids, first.ids);
  EXPECT_EQ(second.run, "84403b1e52e276ca");
  EXPECT_EQ(fold_step(second.run, samples, std::numeric_limits<double>::quiet_NaN()).run,
            "9648a472fe6acbea");
  EXPECT_EQ(fold_step(second.run, samples, -std::numeric_limits<double>::quiet_NaN()).run,
            "9648a472fe6acbea");
  EXPECT_EQ(fold_step("", ids_of({}), 0).ids, "4f53cda18c2baa0c");
}

TEST(RunHash, SeesIdsOrderAndTheLastBitOfTheLossButNotHowTheBatchIsSplit) {
  const std::string start = first_run_hash();
  const StepHashes one = fold_step(start, ids_of({{"a", "b"}}), 2.0);
  EXPECT_EQ(one.run, fold_step(start, ids_of({{"a"}, {"b"}}), 2.0).run);
  EXPECT_NE(one.ids, fold_step(start, ids_of({{"b", "a"}}), 2.0).ids);
  EXPECT_NE(one.ids, fold_step(start, ids_of({{"ab"}}), 2.0).ids);
  EXPECT_NE(one.ids, fold_step(start, ids_of({{"a\",\"b"}}), 2.0).ids);
  EXPECT_NE(one.run, fold_step(start, ids_of({{"a", "b"}}), std::nextafter(2.0, 3.0)).run);
  EXPECT_NE(one.run, fold_step("0000000000000001", ids_of({{"a", "b"}}), 2.0).run);
}

/// Over a skipped step too: the hash can be verified from the file.
TEST(RunHash, OfARunIsFoldedStepByStep) {
  const test::TinyRun files(10);
  Recipe recipe = files.recipe("out");
  recipe.data.eval.clear();
  recipe.precision.compute = "fp16";
  recipe.precision.loss_scale.init = 1024;
  recipe.train.max_steps = 4;
  const TrainOptions options{.gradients_ready = [](int64_t step, Optimizer& optimizer) {
    if (step == 2)
      optimizer.slots().back().param.tensor.mutable_grad().fill_(
          std::numeric_limits<float>::infinity());
  }};
  ASSERT_EQ(train::train(recipe, options), 0);
  std::string hash = first_run_hash();
  int taken = 0, skipped = 0;
  for (const Json& line : test::metric_lines(recipe.output_dir)) {
    if (!line.contains("run_hash")) continue;
    if (line.contains("event")) {
      ++skipped;
      EXPECT_EQ(line["event"], "step_skipped");
    } else {
      ++taken;
      // A loss in the file has the bits of the hashed one; the ids come from the file.
      EXPECT_EQ(line["run_hash"],
                sha256(hash + line["ids_hash"].get<std::string>() + bits_text(line["loss"]))
                    .substr(0, 16));
    }
    EXPECT_NE(line["run_hash"], hash);
    hash = line["run_hash"];
  }
  EXPECT_EQ(taken, 3);
  EXPECT_EQ(skipped, 1);
}

TEST(RunHash, BitsReadBack) {
  for (const double value : {0.0, -0.0, 1.5, 1e-320, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(std::signbit(bits_value(bits_text(value))), std::signbit(value));
    EXPECT_EQ(bits_value(bits_text(value)), value);
  }
  EXPECT_EQ(bits_text(1.0), "3ff0000000000000");
  EXPECT_TRUE(std::isnan(bits_value(bits_text(NAN))));
}

}  // namespace
}  // namespace lft::run_hash_test
