// CUDA graphs: launches give the results of the bodies, and a body that cannot be captured runs
// as it is. On a CPU every body runs as it is.
#include "gpu/devices.h"
#include "gpu/shard_run.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/run/rehearsal.h"
#include "src/train/run/run.h"
#include "src/train/run/step_options.h"
#include "src/train/run/trainer.h"
#include "train/run_files.h"
#ifdef LFT_STAND_IN
#include <optional>

#include "stand_in/device/device.h"
#endif
#ifdef LFT_HAVE_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace lft::test::graphs_test {
using namespace lft::data;
using namespace lft::recipe;
using namespace lft::train;
namespace {

class Graphs : public OnDevice {};

bool mentions(const std::vector<std::string>& notes, const std::string& text) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

TEST_P(Graphs, AReplayReadsWhatIsThereNowAndAddsToWhatWasThere) {
  GraphCache graphs(device(), /*exact=*/true);
  const at::Tensor x = at::zeros({1000}, at::TensorOptions().device(device())),
                   sum = at::zeros_like(x);
  for (int i = 1; i <= 5; ++i) {
    x.fill_(i);
    graphs.run("adder", /*size=*/0, {sum}, [&] { sum.add_(x * x + 1); });
  }
  EXPECT_EQ(sum.min().item<float>(), 1 + 4 + 9 + 16 + 25 + 5);
  EXPECT_EQ(sum.max().item<float>(), 1 + 4 + 9 + 16 + 25 + 5);
  EXPECT_EQ(mentions(graphs.take_notes(), "CUDA graph 1 (of at most 16): adder"), on_gpu());
}

TEST_P(Graphs, ABodyThatWaitsForTheDeviceGoesOnWithoutAGraph) {
  GraphCache graphs(device(), /*exact=*/true);
  const at::Tensor sum = at::zeros({}, at::TensorOptions().device(device()));
  for (int i = 0; i < 5; ++i)
    graphs.run("waiter", /*size=*/0, {sum}, [&] { sum.add_(sum.item<float>() + 1); });
  EXPECT_EQ(sum.item<float>(), 31);
  EXPECT_EQ(mentions(graphs.take_notes(), "continuing without CUDA graphs (waiter)"), on_gpu());
}

TEST_P(Graphs, ABodyThatChangesItsMindIsFoundOut) {
  GraphCache graphs(device(), /*exact=*/false);
  const at::Tensor sum = at::zeros({10}, at::TensorOptions().device(device()));
  int calls = 0;
  for (int i = 1; i <= 4; ++i)
    graphs.run("moody", /*size=*/0, {sum},
               [&] { sum.add_(++calls == 3 ? 100 : 1); });  // the third call is captured
  EXPECT_EQ(mentions(graphs.take_notes(), "a replay does not give what the pass gave"), on_gpu());
  if (on_gpu()) {
    EXPECT_EQ(sum.max().item<float>(), 4);
  }
}

/// Between two passes a copy uses up memory: the sum stays the same as without graphs, and
/// another graph still fits.
TEST_P(Graphs, AProofThatDoesNotFitTakesOneGraphAndNoBit) {
  GraphCache graphs(device(), /*exact=*/true);
  const at::Tensor large = at::zeros({16 << 20}, at::TensorOptions().device(device())),
                   small = at::zeros({1000}, large.options());
  const auto add = [&](const at::Tensor& sum, const std::string& name) {
    graphs.run(name, /*size=*/0, {sum}, [&sum] { sum.add_(1); });
  };
  add(large, "large");
#ifdef LFT_HAVE_CUDA
  double before = 1;
  auto* const allocator = on_gpu() ? c10::cuda::CUDACachingAllocator::get() : nullptr;
  if (allocator != nullptr) {
    empty_cache(device());
    before = allocator->getMemoryFraction(device().index());
    size_t free = 0, total = 0;
    ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    const auto held =
        static_cast<double>(allocator->getDeviceStats(device().index()).reserved_bytes[0].current);
    allocator->setMemoryFraction((held + 32e6) / static_cast<double>(total),
                                 device().index());  // a copy is 67 MB
  }
#endif
#ifdef LFT_STAND_IN
  empty_cache(device());
  std::optional<stand_in::MemoryLimit> limit(std::in_place, 32'000'000);
#endif
  for (int i = 0; i < 3; ++i) add(large, "large");
  for (int i = 0; i < 3; ++i) add(small, "small");
#ifdef LFT_HAVE_CUDA
  if (allocator != nullptr) allocator->setMemoryFraction(before, device().index());
#endif
#ifdef LFT_STAND_IN
  limit.reset();
#endif
  EXPECT_EQ(large.min().item<float>(), 4);
  EXPECT_EQ(large.max().item<float>(), 4);
  EXPECT_EQ(small.max().item<float>(), 3);
  const std::vector<std::string> notes = graphs.take_notes();
  EXPECT_EQ(mentions(notes, "continuing without the CUDA graph of large: "), on_gpu());
  EXPECT_EQ(mentions(notes, "CUDA graph 1 (of at most 16): small"), on_gpu());
}

/// Like the first steps under a loss scale that is still too large.
TEST_P(Graphs, APassThatIsNotFiniteIsNoReasonToGiveUp) {
  GraphCache graphs(device(), /*exact=*/true);
  const at::Tensor x = at::zeros({}, at::TensorOptions().device(device())), y = at::zeros_like(x);
  for (const float value : {1.0f, NAN, INFINITY, 2.0f, 3.0f}) {
    x.fill_(value);
    graphs.run("scaler", /*size=*/0, {y}, [&] { y.copy_(x * 2); });
  }
  EXPECT_EQ(y.item<float>(), 6);
  const std::vector<std::string> notes = graphs.take_notes();
  EXPECT_EQ(mentions(notes, "CUDA graph 1"), on_gpu());
  EXPECT_FALSE(mentions(notes, "continuing without"));
}

/// Its pool would contain the blocks of both, since small blocks are useless for a large one.
TEST_P(Graphs, ALargerBodyThanAllBeforeStartsOver) {
  GraphCache graphs(device(), /*exact=*/true);
  const at::Tensor small = at::zeros({1000}, at::TensorOptions().device(device())),
                   large = at::zeros({1000000}, small.options());
  const auto add = [&](const at::Tensor& sum) {
    graphs.run(std::to_string(sum.numel()) + " numbers", sum.numel(), {sum}, [&, sum] {
      sum.add_(at::mm(sum.view({-1, 10}).t() * 0, sum.view({-1, 10})).sum() + 1);
    });
  };
  for (int i = 0; i < 4; ++i) add(small);
  for (int i = 0; i < 4; ++i) add(large);
  for (int i = 0; i < 4; ++i) add(small);
  EXPECT_EQ(small.min().item<float>(), 8);
  EXPECT_EQ(large.min().item<float>(), 4);
  const std::vector<std::string> notes = graphs.take_notes();
  EXPECT_EQ(notes.size(), on_gpu() ? 3u : 0u);
  EXPECT_EQ(mentions(notes, "CUDA graph 1 (of at most 16): 1000000 numbers"), on_gpu());
  EXPECT_EQ(mentions(notes, "CUDA graph 2 (of at most 16): 1000 numbers"), on_gpu());
}

/// Steps of a run with graphs and of one without: the same bits, since
/// deterministic algorithms are on.
TEST_P(Graphs, StepsAreTheSameBitsWithGraphsAndWithout) {
  const ShardRun files{10};
  for (const char* compute : {"fp32", "bf16", "fp16"}) {
    Recipe recipe = files.recipe(std::string("out-") + compute);
    recipe.precision.compute = compute;
    recipe.model.base_dtype = std::string(compute) == "fp32" ? "fp32" : "bf16";
    recipe.precision.loss_scale.init = 1024;
    recipe.lora.dropout = 0.25;
    recipe.train.grad_accum = 2;
    recipe.train.max_tokens_per_step = 96;
    std::vector<std::vector<at::Tensor>> weights;
    for (const bool uses : {true, false}) {
      RunInputs inputs = open_inputs(recipe);
      inputs.device = device();
      lft::train::Run run = make_run(std::move(inputs));
      StepOptions options = run_step_options(run);
      GraphPasses passes(run.model.model, run.optimizer,
                         {.tokens = 96, .longest = run.data.encode.max_tokens, .sequences = 16},
                         device(),
                         /*exact=*/true);
      passes.graphs().use_graphs(uses);
      options.passes = &passes;
      LoaderOptions loading = loader_options(run, run.data.lengths);
      auto layout = std::make_shared<BatchLayout>(batch_layout(run));
      layout->fill_up = recipe.train.max_tokens_per_step;
      loading.layout = std::move(layout);
      const auto loader = std::make_unique<Loader>(*run.data.train, loading, 0);
      for (int step = 0; step < 8; ++step) {
        const StepOutcome outcome =
            train_step({run.model.model, run.optimizer, run.scaler, run.schedule}, options,
                       loader->next(), run.state);
        ASSERT_EQ(outcome.result, StepResult::kTaken) << outcome.reason;
      }
      const std::vector<std::string> notes = passes.graphs().take_notes();
      EXPECT_EQ(mentions(notes, "decoder over"), on_gpu() && uses && std::string(compute) != "fp32")
          << compute;
      EXPECT_FALSE(mentions(notes, "continuing without"))
          << compute << ": " << (notes.empty() ? "" : notes.back());
      weights.emplace_back();
      for (const Slot& slot : run.optimizer.slots())
        weights.back().push_back(slot.param.tensor.detach().clone());
    }
    for (size_t i = 0; i < weights[0].size(); ++i)
      EXPECT_TRUE(weights[0][i].equal(weights[1][i])) << compute << " " << i;
  }
}

LFT_ON_EACH_DEVICE(Graphs);

}  // namespace
}  // namespace lft::test::graphs_test
