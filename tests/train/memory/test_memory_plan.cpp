// The memory a run will need, counted from shapes: beside what its tensors are seen to take, and
// the micro-batch it is counted for.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "src/data/batch.h"
#include "src/train/machine/cuda_graph.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/run/step_options.h"
#include "src/train/run/trainer.h"
#include "support/counting_allocator.h"
#include "support/llava.h"
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

/// Long answers of different lengths, so that activations are what counts.
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
  /// Of tensors, in a step after the first; what a run holds before it is part of it.
  static double measured(const Recipe& recipe) {
    const auto second = [](int64_t step, Optimizer&) {
      if (step == 1) CountingAllocator::reset_peak();
    };
    EXPECT_EQ(train::train(recipe, {.gradients_ready = second, .stop_behind = 2}), 0);
    return static_cast<double>(CountingAllocator::peak());
  }
  /// Without what no tensor holds.
  static double predicted(const Recipe& recipe) {
    RunInputs inputs = open_inputs(recipe);
    const MemoryPlan plan =
        plan_memory(inputs, worst_micro_batch(inputs, sample_lengths(inputs.data)));
    const std::set<std::string> beside = {"samples read ahead",      kImagesRead,
                                          "stacks and small blocks", "oneDNN's compiled products",
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
  const std::vector<Recipe> recipes = {
      change("fp32", [](Recipe&) {}),
      change("bf16", [](Recipe& r) { r.precision.compute = r.model.base_dtype = "bf16"; }),
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
  };
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

TEST_F(MemoryPlanTest, TheWorstMicroBatchIsTheLargestThatTheLoaderGives) {
  for (const bool grouped : {false, true}) {
    Recipe recipe = this->recipe(grouped ? "grouped" : "mixed");
    recipe.data.shuffle = true;
    recipe.data.group_by_length = grouped;
    recipe.train.batch_size = 3;
    recipe.train.max_steps = 14;  // epochs of 4 steps, the last one cut short
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

/// They have one buffer for the whole run, however a step is cut.
TEST_F(MemoryPlanTest, GradientsAreThereAllAlong) {
  for (const int64_t budget : {600, 100000}) {
    Recipe recipe = this->recipe("cut" + std::to_string(budget));
    recipe.train.max_tokens_per_step = budget;
    RunInputs inputs = open_inputs(recipe);
    const MicroBatchShape worst = worst_micro_batch(inputs, sample_lengths(inputs.data));
    const MemoryPlan plan = plan_memory(inputs, worst);
    double gradients = 0;
    for (const MemoryPart& part : plan.parts)
      gradients += part.name == "gradients" ? part.bytes : 0;
    const double all = 4.0 * static_cast<double>(inputs.model.trainable_parameters);
    EXPECT_EQ(gradients, all) << plan.moment;
  }
}

/// LLaVA-1.5-7B under LoRA on all linear layers of the decoder, on a GPU that need not be there:
/// the plan is arithmetic.
class GpuPlan : public ::testing::Test {
 protected:
  static constexpr int64_t kSamples = 16, kLength = 1076, kBudget = kSamples * kLength;
  static constexpr double kTrained128 =
      2498560.0 * 128;  // 448 tensors: elements for each unit of the rank

  GpuPlan() {
    inputs.recipe.lora.dropout = 0;  // rank 128 on all linear layers of the decoder
    inputs.recipe.train.max_tokens_per_step = kBudget;
    inputs.device = at::Device(at::kCUDA, 0);
    if (!records_graphs(inputs.device)) {  // a build without CUDA
      register_graph_arena(at::kCUDA, [](at::Device) { return std::make_unique<GraphArena>(); });
    }
    inputs.precision.compute = inputs.base_dtype = at::kBFloat16;
    family::ModelConfig& config = inputs.config;
    config = llava::parse_llava({{"model_type", "llava"}}, "7B");
    config.text.vocab = 32064;
    const auto own = std::make_shared<llava::LlavaFields>(llava::fields(config));
    own->vision = {.hidden = 1024,
                   .intermediate = 4096,
                   .layers = 24,
                   .heads = 16,
                   .image_size = 336,
                   .patch_size = 14};
    config.own = own;
    inputs.steps_per_epoch = inputs.total_steps = 1;
    settle_accumulation(inputs.recipe, /*rows=*/1);
    SampleLength row{.tokens = kLength, .supervised = 250, .images = 1};
    row.add_image(family::ordinary_image(config));
    worst = {.samples = std::vector<SampleLength>(kSamples, row),
             .indices = {},
             .step = 1,
             .packed = true};
  }
  MemoryPlan plan() const { return plan_memory(inputs, worst); }
  static std::map<std::string, double> parts(const MemoryPlan& plan) {
    std::map<std::string, double> parts;
    double sum = 0;
    for (const MemoryPart& part : plan.parts) sum += parts[part.name] = part.bytes;
    EXPECT_NEAR(sum, plan.peak, 1);
    return parts;
  }
  static constexpr double kProof = 8 * kTrained128;            // two copies in FP32
  static constexpr double kEmbeds = 2.0 * kBudget * 4096 * 2;  // and their gradient
  static constexpr double kImage =
      576.0 * 4096 * 2 + 4 * 3 * 336 * 336;  // features and pixels of one
  static constexpr double kWorkspace = 32 << 20;

  RunInputs inputs;
  MicroBatchShape worst;
};

TEST_F(GpuPlan, CountsWhatCudaGraphsHoldBesideThePass) {
  const MemoryPlan with = plan();
  inputs.recipe.train.cuda_graphs = "off";
  const MemoryPlan without = plan();
  std::map<std::string, double> a = parts(with), b = parts(without);
  EXPECT_EQ(with.moment, without.moment + ", while a CUDA graph is proven");
  EXPECT_DOUBLE_EQ(a["copies that prove a CUDA graph"], kProof);
  double images = 0;
  for (int count = 9; count <= 16; ++count)
    images += count * kImage;  // of the 8 largest numbers of images
  EXPECT_DOUBLE_EQ(a["inputs of CUDA graphs"], kEmbeds + images);
  EXPECT_DOUBLE_EQ(a["workspace"], 2 * kWorkspace);
  EXPECT_DOUBLE_EQ(a["gradients"], 4 * kTrained128);
  for (const char* same :
       {"frozen weights", "trainables", "gradients", "Adam's moments",
        "activations, decoder layers", "temporaries", "the checkpoint being written"}) {
    EXPECT_DOUBLE_EQ(a[same], b[same]) << same;
  }
  EXPECT_NEAR(with.peak - without.peak, kProof + kEmbeds + images + kWorkspace, 1);
  EXPECT_EQ(without.spare, 0);
  // The vision tower's forward pass lies outside the graphs' memory, and needs less than the
  // copies.
  EXPECT_LT(with.spare, kProof);
  EXPECT_GT(with.spare, 0.8 * kProof);
}

/// 95.1 KB a token and layer (recipes/README.md), two bytes of each of 7.06 billion weights.
TEST_F(GpuPlan, OfSeventeenThousandTokensIsWhatTheShapeSays) {
  std::map<std::string, double> whole = parts(plan());
  EXPECT_NEAR(whole["frozen weights"], 14.13e9, 0.01e9);
  EXPECT_NEAR(whole["activations, decoder layers"], 95.1e3 * 32 * kBudget,
              0.02 * 95.1e3 * 32 * kBudget);
  EXPECT_LT(plan().peak, 80e9);
  inputs.recipe.train.activation_checkpointing = "block";
  const MemoryPlan less = plan();
  EXPECT_LT(less.peak - less.spare - parts(less)["the checkpoint being written"], 30e9);
}

TEST_F(GpuPlan, AMicroBatchIsFilledUpToOneOfTheFewSizes) {
  worst.samples.pop_back();  // 16,140 tokens of at most 17,216, in steps of 576
  const MemoryPlan filled = plan();
  inputs.recipe.train.cuda_graphs = "off";
  const MemoryPlan plain = plan();
  const double layers = parts(plain)["activations, decoder layers"];
  EXPECT_EQ(filled_tokens(15 * kLength, kBudget), 16704);
  // What the last layer keeps of supervised rows does not grow with the padding: 1 in 32.
  EXPECT_NEAR(parts(filled)["activations, decoder layers"], layers * 16704 / (15 * kLength),
              0.01 * layers);
}

/// What is kept of the images' pass for its backward pass lies beside the graphs' memory, and their
/// gradient is proven too.
TEST_F(GpuPlan, CountsTrainedImagesOutsideTheGraphs) {
  inputs.recipe.full = {"projector"};
  const MemoryPlan with = plan();
  std::map<std::string, double> a = parts(with);
  EXPECT_DOUBLE_EQ(a["copies that prove a CUDA graph"], kProof + kEmbeds);
  EXPECT_DOUBLE_EQ(a["inputs of CUDA graphs"], kEmbeds);
  inputs.recipe.train.cuda_graphs = "off";
  std::map<std::string, double> b = parts(plan());
  EXPECT_GT(a["activations, projector"], 0);
  EXPECT_DOUBLE_EQ(a["activations, projector"], b["activations, projector"]);
  EXPECT_GT(a["gradients"], 4 * kTrained128);
}

TEST_F(GpuPlan, Fp32PassesHaveNoGraphOfTheDecoder) {
  inputs.precision.compute = inputs.base_dtype = at::kFloat;
  const MemoryPlan plan = this->plan();
  std::map<std::string, double> a = parts(plan);
  EXPECT_FALSE(a.contains("copies that prove a CUDA graph"));
  EXPECT_EQ(plan.spare, 0);
  EXPECT_DOUBLE_EQ(a["gradients"], 4 * kTrained128);
}

/// A weight that is stored as it is computed with is not copied for a product.
TEST_F(GpuPlan, AnFp16CheckpointInBf16HasNoCopyOfAWeight) {
  std::map<std::string, double> held = parts(plan());
  inputs.base_dtype = at::kHalf;
  std::map<std::string, double> cast = parts(plan());
  EXPECT_DOUBLE_EQ(held["frozen weights"], cast["frozen weights"]);
  EXPECT_NEAR(cast["temporaries"] - held["temporaries"], 4096.0 * 11008 * 2, 1);
}

/// A run does without the copies where there is no room for them: they are no reason to say that it
/// does not fit.
TEST_F(GpuPlan, FitsWithoutTheCopiesOfAProof) {
  MemoryPlan plan = this->plan();
  plan.free = plan.peak - plan.spare;
  EXPECT_TRUE(plan.fits());
  plan.free -= 1;
  EXPECT_FALSE(plan.fits());
  const std::vector<Mitigation> changes = mitigations(inputs, worst.samples, plan);
  const auto off = std::find_if(changes.begin(), changes.end(), [](const Mitigation& each) {
    return each.change == "train.cuda_graphs=off";
  });
  ASSERT_NE(off, changes.end());
  EXPECT_TRUE(off->fits);
  EXPECT_GE(off->saves, kProof);
}

/// As many images of a middling size as are read at a time, or the largest one alone.
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
  EXPECT_EQ(reading({10, 10, 0, 0, 0, 0}), 20);  // rows without an image take none
  EXPECT_EQ(reading({10, 20, 30, 21}), 41);      // twice 20.25, rounded up
  EXPECT_EQ(reading({10, 0, 0}), 10);            // there is no second one
  inputs.recipe.data.workers = 1;
  EXPECT_EQ(reading({10, 10, 10, 10}), 10);
  inputs.recipe.data.workers = 256;  // as many as there are processors, two at least
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
