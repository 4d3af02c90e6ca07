// FP32 activations that do not fit after a recovery: blocks are recomputed, then micro-batches are
// split, and the run continues.
#include <gtest/gtest.h>

#include <limits>

#include "src/train/run/trainer.h"
#include "support/counting_allocator.h"
#include "support/expect_error.h"
#include "train/run_files.h"

namespace lft::spare_memory_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

using test::CountingAllocator;

/// A run whose third step is not finite under BF16; 12 rows in one micro-batch of long answers, so
/// that activations dominate.
class SpareMemory : public ::testing::Test {
 protected:
  SpareMemory() {
    Json rows = Json::parse(test::slurp(run_.dir().file("rows.json")));
    for (Json& row : rows)
      row["conversations"][1]["value"] = std::string(300, 'a') + row["id"].get<std::string>();
    run_.dir().write("rows.json", rows.dump());
  }
  Recipe recipe(const std::string& out, const std::string& checkpointing = "none") const {
    Recipe recipe = run_.recipe(out);
    recipe.data.eval.clear();
    recipe.full.clear();
    recipe.precision.compute = "bf16";
    recipe.train.batch_size = 12;
    recipe.train.max_steps = 5;
    recipe.train.activation_checkpointing = checkpointing;
    return recipe;
  }
  /// From the check of the third step on LibTorch has `limit` bytes in all; 0: no limit. `peak` is
  /// measured from there.
  static int run(const Recipe& recipe, int64_t limit, int64_t* peak = nullptr) {
    const auto third = [limit](int64_t step, Optimizer& optimizer) {
      if (step != 3) return;
      optimizer.slots()[0].param.tensor.mutable_grad().fill_(
          std::numeric_limits<float>::quiet_NaN());
      CountingAllocator::reset_peak();
      if (limit > 0) CountingAllocator::limit(limit);
    };
    const int code = train::train(recipe, {.gradients_ready = third});
    CountingAllocator::limit(std::numeric_limits<int64_t>::max());
    if (peak != nullptr) *peak = CountingAllocator::peak();
    return code;
  }
  static std::string adapter(const Recipe& recipe) {
    return test::slurp(recipe.output_dir + "/adapter/adapter_model.safetensors");
  }

  const test::TinyRun run_;
  const CountingAllocator counting_;
};

TEST_F(SpareMemory, RecomputesThenSplits) {
  int64_t plain = 0, block = 0;
  ASSERT_EQ(run(recipe("plain"), 0, &plain), 0);
  ASSERT_EQ(run(recipe("block", "block"), 0, &block), 0);
  EXPECT_EQ(adapter(recipe("plain")), adapter(recipe("block")));  // recomputing changes no bit
  ASSERT_LT(block, plain * 0.8);

  ASSERT_EQ(run(recipe("little"), (plain + block) / 2), 0);
  std::vector<Json> spared = test::events(recipe("little").output_dir, "memory_spared");
  ASSERT_EQ(spared.size(), 1u);
  EXPECT_EQ(spared[0]["step"], 4);
  EXPECT_EQ(spared[0]["recompute"], 1);
  EXPECT_EQ(spared[0]["split"], 1);
  EXPECT_EQ(adapter(recipe("plain")), adapter(recipe("little")));

  ASSERT_EQ(run(recipe("less"), block * 3 / 4), 0);
  spared = test::events(recipe("less").output_dir, "memory_spared");
  ASSERT_GE(spared.size(), 2u);
  EXPECT_EQ(spared[1]["split"], 2);
  // Dropout masks depend on the part of the micro-batch: different masks, about the same loss.
  const std::vector<Json> whole = test::step_lines(recipe("plain").output_dir),
                          parts = test::step_lines(recipe("less").output_dir);
  ASSERT_EQ(whole.size(), parts.size());
  EXPECT_EQ(whole[1]["loss"], parts[1]["loss"]);
  EXPECT_EQ(whole[2]["supervised_tokens"], parts[2]["supervised_tokens"]);
  EXPECT_NEAR(whole[2]["loss"].get<double>(), parts[2]["loss"].get<double>(), 0.1);
}

TEST_F(SpareMemory, WithoutARecoveryItIsAnError) {
  Recipe recipe = this->recipe("error");
  recipe.precision.compute = "fp32";
  const auto limited = [](int64_t step, Optimizer&) {
    if (step == 2) CountingAllocator::limit(CountingAllocator::live() + 1000);
  };
  EXPECT_LFT_ERROR(ErrorKind::kResource, "out of memory",
                   train::train(recipe, {.gradients_ready = limited}));
  CountingAllocator::limit(std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace lft::spare_memory_test
