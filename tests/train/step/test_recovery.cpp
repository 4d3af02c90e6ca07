// The one-shot FP32 recovery through whole runs: what it preserves, what it changes
// permanently, and what it records.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "src/checkpoint/checkpoint.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"
#include "train/spoil.h"
#include "train/tiny_run.h"

namespace lft::recovery_test {
using namespace lft::checkpoint;
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

namespace fs = std::filesystem;
using test::events;
using test::slurp;
using test::spoil;
using test::step_lines;

constexpr float kInf = std::numeric_limits<float>::infinity(),
                kNaN = std::numeric_limits<float>::quiet_NaN();

Recipe low_precision(const test::TinyRun& run, const std::string& out,
                     const std::string& precision) {
  Recipe recipe = run.recipe(out);
  recipe.data.eval.clear();
  recipe.precision.compute = precision;
  recipe.train.max_steps = 10;
  recipe.optim.warmup_ratio = 0.2;
  recipe.checkpoint = {.every_steps = 1, .keep = 100, .at_step_zero = true};
  return recipe;
}

std::string state_bytes(const std::string& dir, int64_t step) {
  const std::string checkpoint = dir + "/checkpoints/step-" + std::to_string(step);
  return slurp(checkpoint + "/trainables.safetensors") +
         slurp(checkpoint + "/optimizer.safetensors");
}

TEST(Recovery, ABadGradientUnderBf16LeavesEveryBitAndGoesOnInFp32) {
  const test::TinyRun run;
  const Recipe recipe = low_precision(run, "out", "bf16");
  ASSERT_EQ(train::train(recipe, {.gradients_ready = spoil({5}, kNaN)}), 0);
  EXPECT_EQ(state_bytes(recipe.output_dir, 4), state_bytes(recipe.output_dir, 5));
  EXPECT_NE(state_bytes(recipe.output_dir, 5), state_bytes(recipe.output_dir, 6));
  const std::vector<Json> recoveries = events(recipe.output_dir, "fp32_recovery");
  ASSERT_EQ(recoveries.size(), 1u);
  EXPECT_EQ(recoveries[0]["step"], 5);
  EXPECT_EQ(recoveries[0]["lr_before"], recipe.optim.lr);
  EXPECT_EQ(recoveries[0]["lr_after"], recipe.optim.lr / 2);
  const std::vector<Json> steps = step_lines(recipe.output_dir);
  ASSERT_EQ(steps.size(), 9u);  // step 5 was consumed
  for (const Json& step : steps) {
    EXPECT_EQ(step["precision"], step["step"].get<int>() < 5 ? "bf16" : "fp32");
    EXPECT_TRUE(std::isfinite(step["loss"].get<double>()));
  }
}

class RecoverySchedules : public ::testing::TestWithParam<const char*> {};

TEST_P(RecoverySchedules, TheHalvedRateSurvivesTheSchedule) {
  const test::TinyRun run;
  Recipe recipe = low_precision(run, "out", "bf16");
  recipe.optim.schedule = GetParam();
  recipe.optim.projector_lr = 5e-3;
  ASSERT_EQ(train::train(recipe, {.gradients_ready = spoil({4}, kInf)}), 0);
  Recipe halved = low_precision(run, "halved", "fp32");
  halved.optim.schedule = GetParam();
  halved.optim.lr = recipe.optim.lr / 2;
  halved.optim.projector_lr = 2.5e-3;
  ASSERT_EQ(train::train(halved), 0);
  const std::vector<Json> expected = step_lines(halved.output_dir);
  int compared = 0;
  for (const Json& step : step_lines(recipe.output_dir)) {
    if (step["step"].get<size_t>() <= 4) continue;
    EXPECT_EQ(step["lr"], expected.at(step["step"].get<size_t>() - 1)["lr"]) << step["step"];
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

INSTANTIATE_TEST_SUITE_P(All, RecoverySchedules, ::testing::Values("constant", "linear", "cosine"));

TEST(Recovery, TheSecondNonFiniteStepEndsTheRunWithTheLastCheckpointIntact) {
  const test::TinyRun run;
  const Recipe recipe = low_precision(run, "out", "bf16");
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "the one recovery was used up",
                   train::train(recipe, {.gradients_ready = spoil({3, 6}, kNaN)}));
  EXPECT_EQ(events(recipe.output_dir, "fp32_recovery").size(), 1u);
  const std::vector<CheckpointStatus> checkpoints =
      list_checkpoints(recipe.output_dir + "/checkpoints", /*verify=*/true);
  ASSERT_FALSE(checkpoints.empty());
  EXPECT_EQ(checkpoints.front().step, 5);
  EXPECT_EQ(checkpoints.front().fault, "");
  EXPECT_TRUE(fs::exists(recipe.output_dir + "/incidents/step-6/incident.json"));
  EXPECT_FALSE(fs::exists(recipe.output_dir + "/adapter"));
}

TEST(Recovery, StopAndFp32StopAtTheFirst) {
  const test::TinyRun run;
  Recipe recipe = low_precision(run, "stop", "bf16");
  recipe.precision.recovery = "stop";
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "a gradient is not finite",
                   train::train(recipe, {.gradients_ready = spoil({3}, kNaN)}));
  EXPECT_TRUE(events(recipe.output_dir, "fp32_recovery").empty());
  recipe = low_precision(run, "fp32", "fp32");
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "step 3, samples row",
                   train::train(recipe, {.gradients_ready = spoil({3}, kInf)}));
  EXPECT_EQ(list_checkpoints(recipe.output_dir + "/checkpoints", true).front().step, 2);
}

TEST(Recovery, AnFp16OverflowIsSkippedAndHalvesTheScale) {
  const test::TinyRun run;
  const Recipe recipe = low_precision(run, "out", "fp16");
  ASSERT_EQ(train::train(recipe, {.gradients_ready = spoil({5}, kInf)}), 0);
  EXPECT_EQ(state_bytes(recipe.output_dir, 4), state_bytes(recipe.output_dir, 5));
  const std::vector<Json> skipped = events(recipe.output_dir, "step_skipped");
  ASSERT_EQ(skipped.size(), 1u);
  const std::vector<Json> steps = step_lines(recipe.output_dir);
  ASSERT_EQ(steps.size(), 9u);
  EXPECT_EQ(steps[3]["loss_scale"], 65536);
  EXPECT_EQ(steps[4]["loss_scale"], 32768);
  EXPECT_TRUE(events(recipe.output_dir, "fp32_recovery").empty());
  // The schedule is unchanged: step 6 has the rate that step 5 would have had.
  const Recipe whole = low_precision(run, "whole", "fp16");
  ASSERT_EQ(train::train(whole), 0);
  EXPECT_EQ(steps[4]["lr"], step_lines(whole.output_dir)[4]["lr"]);
}

TEST(Recovery, Fp16GivesUpBelowAScaleOfOneAndAfterFiftySkips) {
  const test::TinyRun run;
  std::vector<int64_t> all(200);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i) + 1;
  Recipe recipe = low_precision(run, "scale", "fp16");
  recipe.precision.loss_scale.init = 4;  // 4, 2, 1, then below 1
  recipe.train.max_steps = 8;
  const auto until = [](int64_t last, const std::function<void(int64_t, Optimizer&)>& hook) {
    return [last, hook](int64_t step, Optimizer& optimizer) {
      if (step <= last) hook(step, optimizer);
    };
  };
  ASSERT_EQ(train::train(recipe, {.gradients_ready = until(3, spoil(all, kInf))}), 0);
  ASSERT_EQ(events(recipe.output_dir, "fp32_recovery").size(), 1u);
  EXPECT_EQ(events(recipe.output_dir, "fp32_recovery")[0]["step"], 3);
  EXPECT_EQ(events(recipe.output_dir, "step_skipped").size(), 2u);

  recipe = low_precision(run, "skips", "fp16");
  recipe.precision.loss_scale.init = 4294967296.0;
  recipe.precision.loss_scale.backoff_factor = 0.9;
  recipe.train.max_steps = 54;
  recipe.checkpoint.every_steps = 1000;
  ASSERT_EQ(train::train(recipe, {.gradients_ready = until(50, spoil(all, kInf))}), 0);
  ASSERT_EQ(events(recipe.output_dir, "fp32_recovery").size(), 1u);
  EXPECT_EQ(events(recipe.output_dir, "fp32_recovery")[0]["step"], 50);
  EXPECT_EQ(events(recipe.output_dir, "step_skipped").size(), 49u);
}

TEST(Recovery, TheIncidentSaysWhatHappenedToWhichSamples) {
  const test::TinyRun run;
  Recipe recipe = low_precision(run, "out", "bf16");
  recipe.train.grad_accum = 2;
  ASSERT_EQ(train::train(recipe, {.gradients_ready = spoil({4}, kNaN)}), 0);
  const std::string dir = recipe.output_dir + "/incidents/step-4";
  const Json incident = Json::parse(slurp(dir + "/incident.json"));
  EXPECT_EQ(incident["step"], 4);
  EXPECT_EQ(incident["action"], "fp32_recovery");
  EXPECT_EQ(incident["precision"], "bf16");
  EXPECT_EQ(incident["first_bad_gradient"].get<std::string>().find("language_model.") ==
                    std::string::npos &&
                incident["first_bad_gradient"].get<std::string>().find("multi_modal_projector.") ==
                    std::string::npos,
            false);
  EXPECT_EQ(incident["lr_after"].get<double>(), incident["lr_before"].get<double>() / 2);
  ASSERT_EQ(incident["samples"].size(), 4u);  // the short second batch of the second epoch
  for (const Json& sample : incident["samples"]) {
    EXPECT_EQ(sample["id"].get<std::string>().substr(0, 3), "row");
    ASSERT_EQ(sample["images"].size(), 1u);
    EXPECT_TRUE(fs::exists(sample["images"][0].get<std::string>()));
  }
  EXPECT_EQ(incident["generator"]["seed"], 42);
  EXPECT_EQ(incident["generator"]["epoch"], 1);
  EXPECT_EQ(incident["last_good"]["step"], 3);
  EXPECT_EQ(incident["batch"]["rows"], 4);
  EXPECT_EQ(incident["last_good"]["rows"], 8);
  EXPECT_FALSE(incident["differences"].empty());
  EXPECT_GT(incident["batch"]["pixel_max"].get<double>(), 100);
  // The gradient was corrupted from outside: a replay finds nothing wrong with the batch.
  for (const Json& micro : incident["replay"]) {
    EXPECT_TRUE(micro["finite"].get<bool>());
    EXPECT_NEAR(micro["loss"].get<double>(), micro["fp32_loss"].get<double>(),
                0.02 * micro["fp32_loss"].get<double>());
  }
  EXPECT_FALSE(slurp(dir + "/recipe.yaml").empty());
  // The weights at the start of the step are those of the checkpoint before it.
  EXPECT_EQ(slurp(dir + "/trainables.safetensors"),
            slurp(recipe.output_dir + "/checkpoints/step-3/trainables.safetensors"));
}

/// up_proj of the first layer 2^20 times larger and down_proj smaller by that factor: the same
/// function in FP32, beyond 65,504 in FP16.
void overflow_fp16(test::StoredTensors& tensors) {
  const auto scale = [&](const std::string& part, float factor) {
    for (auto& [name, tensor] : tensors) {
      if (name.find("layers.0.mlp." + part) == std::string::npos ||
          name.find("language_model") == std::string::npos)
        continue;
      float* values = reinterpret_cast<float*>(tensor.bytes.data());
      for (size_t i = 0; i < tensor.bytes.size() / 4; ++i) values[i] *= factor;
    }
  };
  scale("up_proj", 0x1p20f);
  scale("down_proj", 0x1p-20f);
}

TEST(Recovery, ABaseThatOverflowsFp16TrainsOnInFp32) {
  const test::TinyRun run;
  test::write_tiny_llava(run.model(), {.image_token = 260, .vocab = 264, .max_positions = 512},
                         overflow_fp16);
  Recipe recipe = low_precision(run, "out", "fp16");
  recipe.model.base_dtype = "fp32";
  ASSERT_EQ(train::train(recipe), 0);
  const std::vector<Json> recoveries = events(recipe.output_dir, "fp32_recovery");
  ASSERT_EQ(recoveries.size(), 1u);
  EXPECT_EQ(recoveries[0]["step"], 1);
  EXPECT_EQ(recoveries[0]["lr_after"].get<double>(), recipe.optim.lr / 2);
  const Json incident = Json::parse(slurp(recipe.output_dir + "/incidents/step-1/incident.json"));
  EXPECT_EQ(incident["replay"][0]["first_bad_module"], "language_model.model.layers.0.mlp.up_proj");
  EXPECT_TRUE(std::isfinite(incident["replay"][0]["fp32_loss"].get<double>()));
  Recipe halved = low_precision(run, "halved", "fp32");
  halved.model.base_dtype = "fp32";
  halved.optim.lr = recipe.optim.lr / 2;
  ASSERT_EQ(train::train(halved), 0);
  const std::vector<Json> steps = step_lines(recipe.output_dir),
                          expected = step_lines(halved.output_dir);
  ASSERT_EQ(steps.size(), 9u);
  for (const Json& step : steps) {
    EXPECT_EQ(step["precision"], "fp32");
    EXPECT_EQ(step["lr"], expected.at(step["step"].get<size_t>() - 1)["lr"]);
    EXPECT_TRUE(std::isfinite(step["loss"].get<double>()));
  }
}

}  // namespace
}  // namespace lft::recovery_test
