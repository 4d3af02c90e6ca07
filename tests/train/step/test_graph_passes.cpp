// Passes at fixed shapes: the work of a CUDA graph equals the plain pass.
// (tests/gpu checks on a GPU that a graph launches the same.)
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "models/registry/registry.h"
#include "src/data/batch.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/machine/cuda_graph.h"
#include "src/train/run/rehearsal.h"
#include "src/train/run/run.h"
#include "src/train/run/step_options.h"
#include "support/counting_allocator.h"
#include "train/faulty_arena.h"
#include "train/tiny_run.h"

namespace lft::graph_passes_test {
using namespace lft::data;
using namespace lft::recipe;
using namespace lft::train;
namespace {

Recipe packed_recipe(const test::TinyRun& run, double dropout, bool projector) {
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.data.max_tokens = 64;
  recipe.lora.dropout = dropout;
  recipe.optim.lr = 1e-3;
  recipe.train.grad_accum = 2;
  recipe.train.max_tokens_per_step = 140;
  if (!projector) recipe.full.clear();
  return recipe;
}

struct Trained {
  std::vector<double> losses;
  std::vector<SourceLoss> sources;  // over all steps
  std::vector<at::Tensor> weights;
  std::vector<std::string> notes;
};

StepSamples filled_up(StepSamples samples, int64_t fill_up) {
  auto layout = std::make_shared<BatchLayout>(*samples.layout);
  layout->fill_up = fill_up;
  samples.layout = std::move(layout);
  return samples;
}

/// Six steps, with or without the fixed shapes; a CPU has graphs only in `arena`.
Trained train_steps(const Recipe& recipe, bool fixed, at::ScalarType compute = at::kFloat,
                    std::unique_ptr<GraphArena> arena = nullptr) {
  lft::train::Run run = make_run(open_inputs(recipe));
  run.state.compute = compute;
  StepOptions options = run_step_options(run);
  std::unique_ptr<GraphPasses> passes;
  const bool has_graphs = arena != nullptr;
  if (fixed) {
    passes = std::make_unique<GraphPasses>(run.model.model, run.optimizer,
                                           PassLimits{.tokens = 140, .longest = 64, .sequences = 8},
                                           at::kCPU,
                                           /*exact=*/true, std::move(arena));
    options.passes = passes.get();
  }
  const std::unique_ptr<Loader> loader = start_loader(run, 0);
  Trained trained;
  for (int step = 0; step < 6; ++step) {
    const StepOutcome outcome = train_step(
        {run.model.model, run.optimizer, run.scaler, run.schedule}, options,
        filled_up(loader->next(), fixed ? recipe.train.max_tokens_per_step : 0), run.state);
    EXPECT_EQ(outcome.result, StepResult::kTaken) << outcome.reason;
    trained.losses.push_back(outcome.loss);
    trained.sources.insert(trained.sources.end(), outcome.sources.begin(), outcome.sources.end());
  }
  for (const Slot& slot : run.optimizer.slots())
    trained.weights.push_back(slot.param.tensor.detach().clone());
  if (passes) {
    trained.notes = passes->graphs().take_notes();
    EXPECT_TRUE(has_graphs || trained.notes.empty());  // a CPU has no real graphs
  }
  return trained;
}

double relative_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]).square().sum().item<double>();
    size += a[i].square().sum().item<double>();
  }
  return std::sqrt(difference / size);
}

/// Bounds as in test_packing.cpp: float32 sums in another order. With dropout: the padding is
/// after the samples, so their masks are unchanged.
TEST(GraphPasses, TrainLikeThePlainPass) {
  for (const double dropout : {0.0, 0.25}) {
    for (const bool projector : {false, true}) {
      const test::TinyRun tiny;
      const Recipe recipe = packed_recipe(tiny, dropout, projector);
      const Trained want = train_steps(recipe, /*fixed=*/false),
                    got = train_steps(recipe, /*fixed=*/true);
      for (size_t i = 0; i < want.losses.size(); ++i) {
        EXPECT_NEAR(got.losses[i], want.losses[i],
                    2e-5 * want.losses[i] * static_cast<double>(i + 1))
            << dropout << projector << i;
      }
      EXPECT_LT(relative_difference(got.weights, want.weights), 1e-4) << dropout << projector;
    }
  }
}

TEST(GraphPasses, TellTheLossesOfSourcesApartLikeThePlainPass) {
  const test::TinyRun tiny;
  Recipe recipe = packed_recipe(tiny, 0, true);
  const std::string path = recipe.data.train.path;
  recipe.data.train.path.clear();
  recipe.data.train.list = {{.path = path, .image_root = {}, .weight = 1},
                            {.path = path, .image_root = {}, .weight = 2}};
  const Trained want = train_steps(recipe, /*fixed=*/false),
                got = train_steps(recipe, /*fixed=*/true);
  ASSERT_EQ(got.sources.size(), want.sources.size());
  EXPECT_GT(want.sources.size(), want.losses.size());  // steps that have rows of both
  for (size_t i = 0; i < want.sources.size(); ++i) {
    EXPECT_EQ(got.sources[i].source, want.sources[i].source) << i;
    EXPECT_EQ(got.sources[i].supervised, want.sources[i].supervised) << i;
    // Same as for the whole loss, of the last step.
    EXPECT_NEAR(got.sources[i].loss, want.sources[i].loss,
                2e-5 * want.sources[i].loss * static_cast<double>(want.losses.size()))
        << i;
  }
}

TEST(GraphPasses, TrainDoraLikeThePlainPass) {
  const test::TinyRun tiny;
  Recipe recipe = packed_recipe(tiny, 0.25, false);
  recipe.lora.variant = "dora";
  const Trained want = train_steps(recipe, /*fixed=*/false),
                got = train_steps(recipe, /*fixed=*/true);
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 2e-5 * want.losses[i] * static_cast<double>(i + 1))
        << i;
  }
  EXPECT_LT(relative_difference(got.weights, want.weights), 1e-4);
}

TEST(GraphPasses, TrainLikeThePlainPassUnderALossScale) {
  const test::TinyRun tiny;
  Recipe recipe = packed_recipe(tiny, 0, true);
  recipe.precision.compute = "fp16";
  recipe.precision.loss_scale.init = 1024;
  const Trained want = train_steps(recipe, /*fixed=*/false, at::kHalf),
                got = train_steps(recipe, /*fixed=*/true, at::kHalf);
  for (size_t i = 0; i < want.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], want.losses[i], 0x1p-9 * want.losses[i]) << i;  // FP16: 2^-11
}

/// Over every graph of every shape: accumulated gradients, dropout, and embeddings through which a
/// projector after them is trained.
TEST(GraphPasses, AreTheSameBitsWhereMemoryRunsOutOverAGraph) {
  const test::CountingAllocator counting;
  for (const bool projector : {false, true}) {
    const test::TinyRun tiny;
    Recipe recipe = packed_recipe(tiny, 0.25, projector);
    recipe.data.workers = 0;  // workers would run out of memory
    const Trained want = train_steps(recipe, /*fixed=*/true);
    using test::Stage;
    for (const Stage stage : {Stage::kCopiesBefore, Stage::kPass, Stage::kCopiesAfter,
                              Stage::kCapture, Stage::kReplay, Stage::kLaterReplay}) {
      const std::string name =
          "stage " + std::to_string(static_cast<int>(stage)) + (projector ? ", projector" : "");
      const Trained got =
          train_steps(recipe, /*fixed=*/true, at::kFloat,
                      std::make_unique<test::FaultyArena>(stage, /*faults=*/INT_MAX));
      EXPECT_EQ(got.losses, want.losses) << name;
      for (size_t i = 0; i < want.weights.size(); ++i)
        EXPECT_TRUE(got.weights[i].equal(want.weights[i])) << name << " " << i;
      const auto gives_up = [](const std::string& note) {
        return note.starts_with("continuing without the CUDA graph of decoder over ");
      };
      EXPECT_GE(std::count_if(got.notes.begin(), got.notes.end(), gives_up), 1) << name;
    }
  }
}

TEST(GraphPasses, AreTheSameBitsWhenRunAgain) {
  const test::TinyRun tiny;
  const Recipe recipe = packed_recipe(tiny, 0.25, true);
  const Trained a = train_steps(recipe, true), b = train_steps(recipe, true);
  EXPECT_EQ(a.losses, b.losses);
  for (size_t i = 0; i < a.weights.size(); ++i) EXPECT_TRUE(a.weights[i].equal(b.weights[i])) << i;
}

/// After a recovery the plain pass runs: passes that throw when used would show it.
TEST(GraphPasses, ARecoveredRunDoesWithout) {
  const test::TinyRun tiny;
  const Recipe recipe = packed_recipe(tiny, 0, false);
  lft::train::Run run = make_run(open_inputs(recipe));
  StepOptions options = run_step_options(run);
  GraphPasses passes(run.model.model, run.optimizer, {.tokens = 140, .longest = 64, .sequences = 0},
                     at::kCPU, /*exact=*/true);
  options.passes = &passes;
  const std::unique_ptr<Loader> loader = start_loader(run, 0);
  const StepSamples samples = loader->next();
  const auto step = [&] {
    return train_step({run.model.model, run.optimizer, run.scaler, run.schedule}, options, samples,
                      run.state);
  };
  run.state.recovered = true;
  EXPECT_EQ(step().result, StepResult::kTaken);
  run.state.recovered = false;
  passes.graphs().use_graphs(false);
  EXPECT_EQ(step().result, StepResult::kTaken);
  EXPECT_FALSE(uses_cuda_graphs(recipe, run));
}

TEST(CudaGraphs, AreLeftOutWhereImagesDifferInShapeWhichIsSaid) {
  if (!records_graphs(at::kCUDA)) GTEST_SKIP() << "a build without CUDA";
  Recipe recipe;
  recipe.train.max_tokens_per_step = 4096;
  RunSettings settings;
  settings.device = at::Device(at::kCUDA, 0);
  settings.config = registry::parse_config({{"model_type", "llava"}}, "config.json");
  EXPECT_TRUE(uses_cuda_graphs(recipe, settings));
  EXPECT_EQ(graphs_left_out(recipe, settings), "");
  settings.config = registry::parse_config({{"model_type", "llava_next"}}, "config.json");
  EXPECT_FALSE(uses_cuda_graphs(recipe, settings));
  EXPECT_NE(graphs_left_out(recipe, settings).find("images of LLaVA-NeXT differ in shape"),
            std::string::npos);
  settings.config =
      registry::parse_config({{"model_type", "gemma3"}, {"mm_tokens_per_image", 4}}, "config.json");
  EXPECT_FALSE(uses_cuda_graphs(recipe, settings));
  EXPECT_NE(graphs_left_out(recipe, settings).find("see themselves whole"), std::string::npos);
  recipe.train.cuda_graphs = "off";
  EXPECT_EQ(graphs_left_out(recipe, settings), "");
}

TEST(FilledTokens, AreFewEnoughAndNeverTooFew) {
  for (const int64_t most : {1, 63, 64, 140, 776, 16384, 17216}) {
    std::set<int64_t> sizes;
    for (int64_t tokens = 1; tokens <= most; ++tokens) {
      const int64_t filled = filled_tokens(tokens, most);
      ASSERT_GE(filled, tokens);
      ASSERT_LE(filled, most);
      ASSERT_EQ(filled_tokens(filled, most), filled);
      sizes.insert(filled);
    }
    EXPECT_LE(sizes.size(), 32u) << most;
  }
  EXPECT_EQ(filled_tokens(17216, 17216), 17216);  // a full micro-batch has no padding
}

}  // namespace
}  // namespace lft::graph_passes_test
