// Whole runs on the machine's device (the CPU if it has no GPU): the same bytes twice and after
// a kill, the recovery, its incident, out of memory, and memory as predicted.
#include <filesystem>

#include "gpu/devices.h"
#include "gpu/shard_run.h"
#include "src/checkpoint/checkpoint.h"
#include "src/debug/nan/replay.h"
#include "src/train/machine/determinism.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#ifdef LFT_HAVE_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace lft::test::runs_test {
using namespace lft::checkpoint;
using namespace lft::debug;
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

namespace fs = std::filesystem;

struct Setting {
  const char* name;
  const char* compute;
  std::function<void(Recipe&)> set;
};

class DeviceRuns : public ::testing::TestWithParam<Setting> {
 protected:
  Recipe recipe(const std::string& out) const {
    Recipe recipe = run_.recipe(out);
    recipe.lora.dropout = 0.25;
    recipe.precision.compute = GetParam().compute;
    recipe.model.base_dtype = std::string(GetParam().compute) == "fp32" ? "fp32" : "bf16";
    recipe.precision.loss_scale.init = 1024;
    recipe.train.grad_accum = 2;
    recipe.train.max_steps = 6;
    recipe.checkpoint = {.every_steps = 2, .keep = 100, .at_step_zero = true};
    GetParam().set(recipe);
    return recipe;
  }
  const ShardRun run_{10};
};

TEST_P(DeviceRuns, GiveTheSameBytesTwiceAndBehindAKill) {
  const Recipe whole = recipe("whole"), again = recipe("again");
  ASSERT_EQ(train::train(whole), 0);
  ASSERT_EQ(train::train(again), 0);
  const RunBytes expected = run_bytes(whole.output_dir, 6);
  ASSERT_FALSE(expected.adapter.empty());
  const RunBytes second = run_bytes(again.output_dir, 6);
  EXPECT_TRUE(second == expected) << "losses\n" << expected.losses << second.losses;
  for (const CheckpointStatus& status :
       list_checkpoints(whole.output_dir + "/checkpoints", /*verify=*/true))
    EXPECT_EQ(status.fault, "");

  Recipe resumed = recipe("resumed");
  fs::copy(whole.output_dir, resumed.output_dir, fs::copy_options::recursive);
  fs::remove_all(resumed.output_dir + "/adapter");
  for (const int step : {4, 6})
    fs::remove_all(resumed.output_dir + "/checkpoints/step-" + std::to_string(step));
  ASSERT_EQ(train::train(resumed, {.resume = true}), 0);
  EXPECT_EQ(events(resumed.output_dir, "resume").size(), 1u);
  const RunBytes got = run_bytes(resumed.output_dir, 6);
  EXPECT_TRUE(got == expected) << "losses\n" << expected.losses << got.losses;
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, DeviceRuns,
    ::testing::Values(Setting{"fp32", "fp32", [](Recipe&) {}},
                      Setting{"bf16", "bf16", [](Recipe&) {}},
                      Setting{"fp16", "fp16", [](Recipe&) {}},
                      Setting{"bf16_packed", "bf16",
                              [](Recipe& r) { r.train.max_tokens_per_step = 96; }},
                      Setting{"bf16_recomputed", "bf16",
                              [](Recipe& r) { r.train.activation_checkpointing = "block"; }},
                      Setting{"bf16_nf4_8_bits", "bf16",
                              [](Recipe& r) {
                                r.model.base_dtype = "nf4";
                                r.optim.name = "adamw8bit";
                                r.optim.offload = true;
                              }}),
    [](const auto& info) { return std::string(info.param.name); });

/// A graph's micro-batches are padded, so that products of another shape are chosen: some
/// roundings apart, with the same dropout masks.
TEST(DeviceGraphs, GiveTheLossesOfPlainLaunches) {
  const ShardRun files(10);
  std::map<std::string, std::vector<Json>> steps;
  for (const std::string graphs : {"auto", "off"}) {
    Recipe recipe = files.recipe(graphs);
    recipe.model.base_dtype = "bf16", recipe.precision.compute = "bf16";
    recipe.lora.dropout = 0.5;
    recipe.train.grad_accum = 2;
    recipe.train.max_steps = 8;
    recipe.train.max_tokens_per_step = 256;
    recipe.train.cuda_graphs = graphs;
    ASSERT_EQ(train::train(recipe), 0);
    steps[graphs] = step_lines(recipe.output_dir);
  }
  ASSERT_EQ(steps["auto"].size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    const double loss = steps["off"][i]["loss"];
    EXPECT_NEAR(steps["auto"][i]["loss"].get<double>(), loss, 8 * rounding(at::kBFloat16) * loss)
        << i + 1;
    EXPECT_EQ(steps["auto"][i]["supervised_tokens"], steps["off"][i]["supervised_tokens"]);
  }
}

/// up_proj of the first decoder layer 2^20 times larger and down_proj smaller by the same factor:
/// the same in FP32 and BF16, beyond 65,504 in FP16.
void overflow_fp16(StoredTensors& tensors) {
  for (auto& [name, tensor] : tensors) {
    if (name.find("language_model") == std::string::npos) continue;
    const bool up = name.find("layers.0.mlp.up_proj") != std::string::npos;
    if (!up && name.find("layers.0.mlp.down_proj") == std::string::npos) continue;
    float* values = reinterpret_cast<float*>(tensor.bytes.data());
    for (size_t i = 0; i < tensor.bytes.size() / 4; ++i) values[i] *= up ? 0x1p20f : 0x1p-20f;
  }
}

TEST(DeviceRecovery, AnFp16OverflowGoesOnInFp32AndItsIncidentReplays) {
  ShardRun files;
  files.write_weights(overflow_fp16);
  Recipe recipe = files.recipe("out");
  recipe.model.base_dtype = "fp32";
  recipe.precision.compute = "fp16";
  ASSERT_EQ(train::train(recipe), 0);
  ASSERT_EQ(events(recipe.output_dir, "fp32_recovery").size(), 1u);
  EXPECT_EQ(events(recipe.output_dir, "fp32_recovery")[0]["step"], 1);
  const std::vector<Json> steps = step_lines(recipe.output_dir);
  ASSERT_EQ(steps.size(), 5u);
  for (const Json& step : steps) EXPECT_EQ(step["precision"], "fp32");
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "language_model.model.layers.0.mlp.up_proj",
                   replay(recipe.output_dir + "/incidents/step-1"));
}

TEST(DeviceRecovery, ABadBf16GradientLeavesEveryBitAndGoesOnInFp32) {
  const ShardRun files;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    Recipe recipe = files.recipe(std::isnan(bad) ? "nan" : "inf");
    recipe.model.base_dtype = "bf16", recipe.precision.compute = "bf16";
    recipe.train.max_steps = 8;
    recipe.checkpoint = {.every_steps = 1, .keep = 100, .at_step_zero = true};
    const auto spoil = [&](int64_t step, Optimizer& optimizer) {
      if (step == 4) optimizer.slots()[1].param.tensor.mutable_grad().view(-1)[3] = bad;
    };
    ASSERT_EQ(train::train(recipe, {.gradients_ready = spoil}), 0);
    const auto state = [&](int step) {
      const RunBytes bytes = run_bytes(recipe.output_dir, step);
      return bytes.weights + bytes.moments;
    };
    EXPECT_EQ(state(3), state(4));
    EXPECT_NE(state(4), state(5));
    ASSERT_EQ(events(recipe.output_dir, "fp32_recovery").size(), 1u);
    const std::vector<Json> steps = step_lines(recipe.output_dir);
    ASSERT_EQ(steps.size(), 7u);
    for (const Json& step : steps)
      EXPECT_EQ(step["precision"], step["step"].get<int>() < 4 ? "bf16" : "fp32");
    EXPECT_EQ(replay(recipe.output_dir + "/incidents/step-4"),
              0);  // corrupted from outside: the batch is sound
  }
}

/// Large enough that rounding up to 2 and 20 MiB by LibTorch's allocator is relatively small.
nlohmann::json wide_config() {
  nlohmann::json config =
      TinyLlava{.image_token = 260, .vocab = 264, .max_positions = 2048}.config();
  config["text_config"]["hidden_size"] = 1024;
  config["text_config"]["intermediate_size"] = 2816;
  config["text_config"]["num_hidden_layers"] = 6;
  config["text_config"]["num_attention_heads"] = config["text_config"]["num_key_value_heads"] = 8;
  return config;
}

class DeviceMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    make_deterministic(true);
    if (default_device().is_cpu()) GTEST_SKIP() << "no GPU here";
  }
  Recipe recipe(const std::string& out) const {
    Recipe recipe = files_.recipe(out);
    recipe.model.init = "random";
    recipe.model.base_dtype = "bf16", recipe.precision.compute = "bf16";
    recipe.lora.rank = 16;
    recipe.full.clear();
    recipe.train.batch_size = 8;
    recipe.train.max_steps = 3;
    return recipe;
  }
  const ShardRun files_{wide_config(), /*rows=*/8, /*text=*/1000};
};

TEST_F(DeviceMemory, IsWithinATenthOfWhatWasPredicted) {
  const std::vector<std::pair<const char*, std::function<void(Recipe&)>>> ways = {
      {"padded", [](Recipe&) {}},
      {"packed", [](Recipe& r) { r.train.max_tokens_per_step = 8192; }},
      {"dropout", [](Recipe& r) { r.lora.dropout = 0.05; }},
      {"recomputed", [](Recipe& r) { r.train.activation_checkpointing = "block"; }},
      {"nf4", [](Recipe& r) { r.model.base_dtype = "nf4"; }},
  };
  for (const auto& [name, set] : ways) {
    Recipe recipe = this->recipe(name);
    set(recipe);
    empty_cache(default_device());
    ASSERT_EQ(train::train(recipe), 0) << name;
    const std::vector<Json> memory = events(recipe.output_dir, "memory");
    ASSERT_EQ(memory.size(), 1u);
    const double peak = memory[0]["peak_bytes"], predicted = memory[0]["predicted_bytes"];
    EXPECT_NEAR(predicted, peak, 0.1 * peak) << name;
    std::printf("%s: peak %.0f, predicted %.0f\n", name, peak, predicted);
  }
}

#ifdef LFT_HAVE_CUDA
TEST_F(DeviceMemory, ThatRunsOutIsOneErrorThatNamesTheModule) {
  empty_cache(default_device());
  auto* const allocator = c10::cuda::CUDACachingAllocator::get();
  const double before = allocator->getMemoryFraction(0);
  size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  allocator->setMemoryFraction(3e8 / static_cast<double>(total),
                               0);  // enough for the weights, not for a micro-batch
  const std::string text = thrown_text(
      ErrorKind::kResource, [&] { train::train(recipe("out")); }, __FILE__, __LINE__);
  allocator->setMemoryFraction(before, 0);
  EXPECT_EQ(text.rfind("error: out of memory on cuda", 0), 0u) << text;
  for (const char* piece : {" asked for, ", " free", "language_model.model.layers.", "next: "}) {
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " in\n" << text;
  }
  ASSERT_EQ(train::train(recipe("behind")), 0);  // the process continues normally
}
#endif

}  // namespace
}  // namespace lft::test::runs_test
