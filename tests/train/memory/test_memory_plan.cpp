// The planned memory of a run, counted from shapes: compared with the measured use of its tensors,
// and the micro-batch that it is counted for.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "src/data/batch.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/run/step_options.h"
#include "src/train/run/trainer.h"
#include "support/counting_allocator.h"
#include "support/llava.h"
#include "support/tiny_experts.h"
#include "train/run_files.h"

namespace lft::memory_plan_test {
using namespace lft::data;
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::recipe;
using namespace lft::train;
namespace {

using test::CountingAllocator;

/// Long answers of different lengths, so that activations dominate.
class MemoryPlanTest : public ::testing::Test {
 protected:
  MemoryPlanTest() {
    Json rows = Json::parse(test::slurp(run_.dir().file("rows.json")));
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i]["conversations"][1]["value"] = std::string(200 + 17 * (i * 5 % 12), 'a');
    run_.dir().write("rows.json", rows.dump());
  }
  Recipe recipe(const std::string& out) const {
    Recipe recipe = run_.recipe(out);
    recipe.data.eval.clear();
    recipe.full.clear();
    recipe.train.worst_first = false;
    recipe.train.max_steps = 3;
    recipe.data.shuffle = false;
    recipe.train.batch_size = 12;
    return recipe;
  }
  /// Tensor memory in a step after the first; what a run allocates before it is included.
  static double measured(const Recipe& recipe) {
    const auto second = [](int64_t step, Optimizer&) {
      if (step == 1) CountingAllocator::reset_peak();
    };
    EXPECT_EQ(train::train(recipe, {.gradients_ready = second, .stop_after_step = 2}), 0);
    return static_cast<double>(CountingAllocator::peak());
  }
  static void expect_counted(const std::vector<Recipe>& recipes) {
    for (const Recipe& recipe : recipes) {
      const double seen = measured(recipe), counted = predicted([&] {
                                              Recipe again = recipe;
                                              again.output_dir += "-again";
                                              return again;
                                            }());
      std::printf("%s: seen %.0f, counted %.0f\n", recipe.output_dir.c_str(), seen, counted);
      EXPECT_NEAR(counted, seen, 0.1 * seen) << recipe.output_dir;
    }
  }
  /// Without memory outside tensors.
  static double predicted(const Recipe& recipe) {
    RunInputs inputs = open_inputs(recipe);
    const MemoryPlan plan =
        plan_memory(inputs, worst_micro_batch(inputs, sample_lengths(inputs.data)));
    const std::set<std::string> beside = {"samples read ahead",      kImagesRead,
                                          "stacks and small blocks", "oneDNN's cached kernels",
                                          "MKL's buffers",           "between blocks"};
    double sum = 0, tensors = 0;
    for (const MemoryPart& part : plan.parts) {
      sum += part.bytes;
      if (!beside.contains(part.name)) tensors += part.bytes;
    }
    EXPECT_NEAR(sum, plan.peak, 1);
    return tensors;
  }

  const test::TinyRun run_;
};

TEST_F(MemoryPlanTest, CountsWhatTensorsTake) {
  const CountingAllocator counting;
  const auto change = [this](const std::string& name, const std::function<void(Recipe&)>& apply) {
    Recipe recipe = this->recipe(name);
    apply(recipe);
    return recipe;
  };
  expect_counted({
      change("fp32", [](Recipe&) {}),
      change("bf16", [](Recipe& r) { r.precision.compute = "bf16", r.model.base_dtype = "bf16"; }),
      change("mixed", [](Recipe& r) { r.precision.compute = "bf16"; }),
      change("nodrop", [](Recipe& r) { r.lora.dropout = 0; }),
      change("block", [](Recipe& r) { r.train.activation_checkpointing = "block"; }),
      change("half", [](Recipe& r) { r.train.batch_size = 6, r.train.grad_accum = 2; }),
      change("attention",
             [](Recipe& r) {
               r.lora.targets = {"llm:q_proj", "llm:v_proj"};
             }),
      change("projector", [](Recipe& r) { r.full = {"projector"}; }),
      change("packed", [](Recipe& r) { r.train.max_tokens_per_step = 1000; }),
      change("lion", [](Recipe& r) { r.optim.name = "lion"; }),
      change("muon", [](Recipe& r) { r.optim.name = "muon"; }),
      change("nf4", [](Recipe& r) { r.model.base_dtype = "nf4"; }),
      change("fp8", [](Recipe& r) { r.model.base_dtype = "fp8", r.precision.compute = "bf16"; }),
  });
}

/// Text alone: the decoder has experts, and in the second family a gated delta rule.
TEST_F(MemoryPlanTest, CountsWhatExpertsTake) {
  const CountingAllocator counting;
  Json rows = Json::parse(test::slurp(run_.dir().file("rows.json")));
  for (Json& row : rows) {
    row.erase("image");
    row["conversations"][0]["value"] = "What?";
  }
  run_.dir().write("rows.json", rows.dump());
  std::string tokenizer = test::byte_tokenizer().dump();
  constexpr std::string_view kImage = "<image>";
  tokenizer.replace(tokenizer.find(kImage), kImage.size(), "<|image_pad|>");
  run_.dir().write("model/tokenizer.json", tokenizer);
  for (const std::string model_type : {"qwen3_vl_moe", "qwen3_5_moe"}) {
    Json config = test::expert_config(model_type);
    config["text_config"].update({{"vocab_size", 264}, {"max_position_embeddings", 512}});
    config.update({{"image_token_id", 260}, {"video_token_id", 261}});
    test::write_experts(run_.model(), config,
                        test::expert_tensors_of(config, DType::kF32, /*transposed=*/false));
    const auto change = [&](const std::string& name, const std::function<void(Recipe&)>& apply) {
      Recipe recipe = this->recipe(model_type + "-" + name);
      recipe.data.image_fit = "native";
      recipe.lora.dropout = 0;
      recipe.lora.targets = {"llm:all-linear", "llm:experts.gate_up_proj", "llm:experts.down_proj"};
      apply(recipe);
      return recipe;
    };
    const std::vector<Recipe> recipes = {
        change("fp32", [](Recipe&) {}),
        change("bf16",
               [](Recipe& r) { r.precision.compute = "bf16", r.model.base_dtype = "bf16"; }),
        change("nf4", [](Recipe& r) { r.model.base_dtype = "nf4"; }),
        change("fp8", [](Recipe& r) { r.model.base_dtype = "fp8", r.precision.compute = "bf16"; }),
        change("whole", [](Recipe& r) { r.full = {"llm"}, r.lora.targets.clear(); }),
        change("block", [](Recipe& r) { r.train.activation_checkpointing = "block"; }),
        change("experts",
               [](Recipe& r) {
                 r.lora.targets = {"llm:experts.gate_up_proj", "llm:experts.down_proj"};
               }),
        change("attention",
               [](Recipe& r) {
                 r.lora.targets = {"llm:q_proj", "llm:v_proj"};
               }),
    };
    expect_counted(recipes);
  }
}

TEST_F(MemoryPlanTest, TheWorstMicroBatchIsTheLargestThatTheLoaderGives) {
  for (const bool grouped : {false, true}) {
    Recipe recipe = this->recipe(grouped ? "grouped" : "mixed");
    recipe.data.shuffle = true;
    recipe.data.group_by_length = grouped;
    recipe.train.batch_size = 3;
    recipe.train.max_steps = 14;  // epochs of 4 steps, the last one truncated
    RunInputs inputs = open_inputs(recipe);
    const MicroBatchShape worst = worst_micro_batch(inputs, sample_lengths(inputs.data));
    Loader loader(*inputs.data.train, loader_options(inputs, inputs.data.lengths));
    size_t most = 0;
    std::vector<size_t> positions;
    for (int64_t step = 1; step <= recipe.train.max_steps; ++step) {
      const StepSamples samples = loader.next();
      size_t longest = 0;
      for (const Sample& sample : samples.micro.at(0))
        longest = std::max(longest, sample.input_ids.size());
      positions.push_back(longest * samples.micro[0].size());
      most = std::max(most, positions.back());
      if (step == worst.step) {
        EXPECT_EQ(samples.indices.at(0), worst.indices);
      }
    }
    ASSERT_GE(worst.step, 1);
    EXPECT_EQ(positions.at(static_cast<size_t>(worst.step - 1)), most);
    EXPECT_EQ(static_cast<size_t>(worst.longest()) * worst.samples.size(), most);
    EXPECT_EQ(worst.images(), 3);
  }
}

TEST_F(MemoryPlanTest, TheWorstPackedMicroBatchIsOneThatTheLoaderGives) {
  Recipe recipe = this->recipe("packed");
  recipe.data.shuffle = true;
  recipe.train.max_tokens_per_step = 1000;
  recipe.train.max_steps = 3;
  RunInputs inputs = open_inputs(recipe);
  const MicroBatchShape worst = worst_micro_batch(inputs, sample_lengths(inputs.data));
  Loader loader(*inputs.data.train, loader_options(inputs, inputs.data.lengths));
  int64_t most = 0;
  bool found = false;
  for (int64_t step = 1; step <= recipe.train.max_steps; ++step) {
    const StepSamples samples = loader.next();
    for (size_t m = 0; m < samples.micro.size(); ++m) {
      int64_t positions = 0;
      for (const Sample& sample : samples.micro[m])
        positions += static_cast<int64_t>(sample.input_ids.size());
      most = std::max(most, positions);
      found |= step == worst.step && samples.indices[m] == worst.indices;
    }
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(worst.positions(), most);
  EXPECT_LE(most, 1000);
}

TEST_F(MemoryPlanTest, LeavesBadSamplesOutOfTheWorst) {
  RunInputs inputs = open_inputs(recipe("bad"));
  std::vector<SampleLength> lengths = sample_lengths(inputs.data);
  lengths[5] = {};
  const MicroBatchShape worst = worst_micro_batch(inputs, lengths);
  EXPECT_EQ(worst.samples.size(), 11u);
  EXPECT_EQ(std::count(worst.indices.begin(), worst.indices.end(), 5), 0);
  EXPECT_EQ(worst_micro_batch(inputs, std::vector<SampleLength>(12)).step, 0);
}

/// They have one buffer for the whole run, however a step is split.
TEST_F(MemoryPlanTest, GradientsAreThereAllAlong) {
  for (const int64_t budget : {600, 100000}) {
    Recipe recipe = this->recipe("cut" + std::to_string(budget));
    recipe.train.max_tokens_per_step = budget;
    RunInputs inputs = open_inputs(recipe);
    const MicroBatchShape worst = worst_micro_batch(inputs, sample_lengths(inputs.data));
    const MemoryPlan plan = plan_memory(inputs, worst);
    const double all = 4.0 * static_cast<double>(inputs.files.trainable_parameters);
    EXPECT_EQ(plan.bytes_of("gradients"), all) << plan.moment;
  }
}

/// As many medium-size images as are read at a time, or only the largest one.
TEST_F(MemoryPlanTest, ImagesThatAreReadTogetherAreCountedTogether) {
  Recipe recipe = this->recipe("reading");
  recipe.data.workers = 2;
  recipe.train.worst_first = true;
  RunInputs inputs = open_inputs(recipe);
  const auto reading = [&](const std::vector<int64_t>& bytes) {
    std::vector<SampleLength> lengths;
    for (const int64_t each : bytes)
      lengths.push_back({.tokens = 9, .supervised = 3, .reading = each});
    return worst_micro_batch(inputs, lengths).reading;
  };
  EXPECT_EQ(reading({0, 0, 0}), 0);
  EXPECT_EQ(reading({10, 10, 10, 10}), 20);
  EXPECT_EQ(reading({10, 10, 10, 10, 1000}), 1000);
  EXPECT_EQ(reading({10, 10, 0, 0, 0, 0}), 20);  // rows without an image need none
  EXPECT_EQ(reading({10, 20, 30, 21}), 41);      // twice 20.25, rounded up
  EXPECT_EQ(reading({10, 0, 0}), 10);            // there is no second one
  inputs.recipe.data.workers = 1;
  EXPECT_EQ(reading({10, 10, 10, 10}), 10);
  inputs.recipe.data.workers = 256;  // the number of processors, at least two
  const std::vector<int64_t> many(1000, 10);
  EXPECT_EQ(reading(many), 10 * std::max(2U, std::thread::hardware_concurrency()));
}

TEST_F(MemoryPlanTest, FewerWorkersAreProposedWhereImagesAreLarge) {
  Recipe recipe = this->recipe("photographs");
  recipe.data.workers = 2;
  RunInputs inputs = open_inputs(recipe);
  const auto proposed = [&](int64_t bytes) {
    std::vector<SampleLength> lengths = sample_lengths(inputs.data);
    for (SampleLength& each : lengths) each.reading = bytes;
    const MemoryPlan plan = plan_memory(inputs, worst_micro_batch(inputs, lengths));
    for (const Mitigation& each : mitigations(inputs, lengths, plan)) {
      if (each.change == "data.workers=1") return each.saves;
    }
    return 0.0;
  };
  EXPECT_EQ(proposed(1000), 0);
  EXPECT_GE(proposed(100'000'000), 100e6);
}

TEST_F(MemoryPlanTest, MitigationsSaveWhatTheChangedRecipeNeedsLess) {
  RunInputs inputs = open_inputs(recipe("much"));
  const std::vector<SampleLength>& lengths = sample_lengths(inputs.data);
  MemoryPlan plan = plan_memory(inputs, worst_micro_batch(inputs, lengths));
  plan.free = plan.peak * 0.9;
  const std::vector<Mitigation> changes = mitigations(inputs, lengths, plan);
  const auto block = std::find_if(changes.begin(), changes.end(), [](const Mitigation& each) {
    return each.change == "train.activation_checkpointing=block";
  });
  ASSERT_NE(block, changes.end());
  Recipe changed = recipe("less");
  changed.train.activation_checkpointing = "block";
  RunInputs other = open_inputs(changed);
  EXPECT_NEAR(
      block->saves,
      plan.peak - plan_memory(other, worst_micro_batch(other, sample_lengths(other.data))).peak, 1);
  for (const Mitigation& each : changes) {
    EXPECT_GT(each.saves, 0) << each.change;
    EXPECT_EQ(each.fits, plan.peak - each.saves <= plan.free) << each.change;
  }
}

}  // namespace
}  // namespace lft::memory_plan_test
