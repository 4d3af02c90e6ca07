// Runs that only train parts fully, without LoRA: their output, and runs that start from it.
#include <gtest/gtest.h>

#include <filesystem>

#include "src/checkpoint/tensor_file.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"

namespace lft::parts_test {
using namespace lft::checkpoint;
using namespace lft::recipe;
using namespace lft::train;
namespace {

namespace fs = std::filesystem;

/// LLaVA's first stage.
Recipe first_stage(const test::TinyRun& run) {
  Recipe recipe = run.recipe("first");
  recipe.lora.targets.clear();
  recipe.full = {"projector"};
  return recipe;
}

TEST(Parts, AreTheProductOfARunWithoutLora) {
  const test::TinyRun run;
  const Recipe recipe = first_stage(run);
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_FALSE(fs::exists(recipe.output_dir + "/adapter"));
  EXPECT_FALSE(fs::exists(recipe.output_dir + "/model"));
  const TensorMap parts = read_tensor_file(recipe.output_dir + "/parts/parts.safetensors");
  EXPECT_EQ(parts.size(), 4u);
  const TensorMap trained =
      read_tensor_file(recipe.output_dir + "/checkpoints/step-6/trainables.safetensors");
  ASSERT_EQ(trained.size(), 4u);
  for (const auto& [name, tensor] : trained)
    EXPECT_TRUE(parts.at("model." + name).equal(tensor)) << name;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "output_dir contains a run", train::train(recipe));
  ASSERT_EQ(train::train(recipe, {.resume = true}), 0);
}

/// Its last loss is where the second stage begins, for any second-stage trainables.
TEST(Parts, TheSecondStageStartsFromThePartsOfTheFirst) {
  const test::TinyRun run;
  Recipe first = first_stage(run);
  first.data.shuffle = false;
  first.train.batch_size = 12;
  ASSERT_EQ(train::train(first), 0);
  Recipe more = first;  // the continuation of the first stage
  more.output_dir = run.dir().file("more");
  more.train.max_steps = 1;
  more.optim.warmup_ratio = 0;
  more.lora.init_from = first.output_dir + "/parts";
  ASSERT_EQ(train::train(more), 0);
  const double start = test::step_lines(more.output_dir)[0]["loss"].get<double>();
  const auto second = [&](const std::string& out, const std::function<void(Recipe&)>& change) {
    Recipe recipe = more;
    recipe.output_dir = run.dir().file(out);
    change(recipe);
    EXPECT_EQ(train::train(recipe), 0);
    return test::step_lines(recipe.output_dir)[0]["loss"].get<double>();
  };
  EXPECT_EQ(second("whole", [](Recipe& r) { r.full = {"projector", "llm"}; }), start);
  EXPECT_EQ(second("lora", [](Recipe& r) { r.lora.targets = {"llm:all-linear"}; }), start);
  EXPECT_NE(second("without", [](Recipe& r) { r.lora.init_from.clear(); }), start);
  Recipe frozen = more;
  frozen.output_dir = run.dir().file("frozen");
  frozen.full = {"llm"};
  EXPECT_LFT_ERROR(ErrorKind::kInput, "full: [projector]", train::train(frozen));
}

}  // namespace
}  // namespace lft::parts_test
