// What one decoder layer adds to a step on a GPU: launches, and bytes that they read or write.
#include <gtest/gtest.h>

#include "gpu/shard_run.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/run/run.h"
#include "src/train/run/step_options.h"
#include "stand_in/device/device.h"

namespace lft::test::layer_cost_test {
using namespace lft::train;
namespace {

constexpr int64_t kHidden = 64, kIntermediate = 160;

struct Cost {
  stand_in::Counts counts;
  int64_t positions = 0;
};

/// Of the second step: forward and backward pass, packed, without graphs, and the update.
Cost step_of(int64_t layers, const std::function<void(recipe::Recipe&)>& set) {
  nlohmann::json config =
      TinyLlava{.image_token = 260, .vocab = 264, .max_positions = 512}.config();
  config["text_config"]["hidden_size"] = kHidden;
  config["text_config"]["intermediate_size"] = kIntermediate;
  config["text_config"]["num_hidden_layers"] = layers;
  const ShardRun files(config, /*rows=*/16, /*text=*/24);
  recipe::Recipe recipe = files.recipe("out");
  recipe.model.init = "random";
  recipe.precision.compute = "bf16", recipe.model.base_dtype = "bf16";
  recipe.train.max_tokens_per_step = 2048, recipe.train.batch_size = 8;
  recipe.train.cuda_graphs = "off";
  set(recipe);
  Run run = make_run(open_inputs(recipe));
  const std::unique_ptr<data::Loader> loader = start_loader(run, 0);
  const data::StepSamples samples = loader->next();
  Cost cost;
  for (int step = 0; step < 2; ++step) {
    const stand_in::Counts before = stand_in::counts();
    const StepOutcome outcome =
        train_step({run.model.model, run.optimizer, run.scaler, run.schedule},
                   run_step_options(run), samples, run.state);
    EXPECT_EQ(outcome.result, StepResult::kTaken) << outcome.reason;
    cost.counts = stand_in::counts() - before;
  }
  for (const data::Sample& sample : samples.micro.at(0))
    cost.positions += static_cast<int64_t>(sample.input_ids.size());
  EXPECT_EQ(samples.micro.size(), 1U);
  return cost;
}

struct Way {
  const char* name;
  std::function<void(recipe::Recipe&)> set;
  int64_t launches;  // at most
  double passes;     // over activations of [positions, kHidden] in BF16, at most
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
class LayerCost : public ::testing::TestWithParam<Way> {};

TEST_P(LayerCost, StaysWithinItsLaunchesAndBytes) {
  const Cost two = step_of(2, GetParam().set), three = step_of(3, GetParam().set);
  ASSERT_EQ(two.positions, three.positions);
  const stand_in::Counts layer = three.counts - two.counts;
  const double passes =
      static_cast<double>(layer.bytes) / static_cast<double>(2 * two.positions * kHidden);
  EXPECT_LE(layer.launches, GetParam().launches);
  EXPECT_LE(passes, GetParam().passes);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, LayerCost,
    ::testing::Values(
        Way{"lora", [](recipe::Recipe&) {}, 76, 162},
        Way{"lora_with_dropout", [](recipe::Recipe& r) { r.lora.dropout = 0.1; }, 104, 217},
        Way{"recomputed", [](recipe::Recipe& r) { r.train.activation_checkpointing = "block"; },
            102, 231},
        Way{"dora", [](recipe::Recipe& r) { r.lora.variant = "dora"; }, 211, 319}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lft::test::layer_cost_test
