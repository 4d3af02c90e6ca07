// The planned memory of a run on a GPU, without a GPU: the plan is arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "src/train/machine/cuda_graph.h"
#include "src/train/memory/memory_plan.h"
#include "support/llava.h"

namespace lft::gpu_plan_test {
using namespace lft::data;
using namespace lft::train;
namespace {

/// LLaVA-1.5-7B under LoRA on all linear layers of the decoder.
class GpuPlan : public ::testing::Test {
 protected:
  static constexpr int64_t kSamples = 16, kLength = 1076, kBudget = kSamples * kLength;
  static constexpr double kTrained128 = 2498560.0 * 128;  // 448 tensors: elements per unit of rank

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
    SampleLength row{.tokens = kLength, .supervised = 250, .images = 1, .longest = kLength};
    row.add_image(family::reference_image_plan(config));
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
  static constexpr double kEmbeds = 2.0 * kBudget * 4096 * 2;  // embeddings and their gradient
  static constexpr double kImage =
      576.0 * 4096 * 2 + 4 * 3 * 336 * 336;             // features and pixels of one
  static constexpr double kWorkspace = 2 * (32 << 20);  // cuBLAS workspaces of two threads' streams

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
    images += count * kImage;  // the 8 largest numbers of images
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
  // The vision tower's forward pass is outside the graphs' memory, and needs less than the
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

/// What the image pass keeps for its backward pass is outside the graphs' memory, and its
/// gradient is verified too.
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

/// A weight stored in its compute dtype is not copied for a product.
TEST_F(GpuPlan, AnFp16CheckpointInBf16HasNoCopyOfAWeight) {
  std::map<std::string, double> held = parts(plan());
  inputs.base_dtype = at::kHalf;
  std::map<std::string, double> cast = parts(plan());
  EXPECT_DOUBLE_EQ(held["frozen weights"], cast["frozen weights"]);
  EXPECT_NEAR(cast["temporaries"] - held["temporaries"], 4096.0 * 11008 * 2, 1);
}

/// A run works without the copies if there is no room for them: they are no reason to report that
/// it does not fit.
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

}  // namespace
}  // namespace lft::gpu_plan_test
