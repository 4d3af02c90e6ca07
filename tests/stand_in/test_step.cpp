// Host waits and device memory of a step: one read, no blocking copy, and no
// device allocation within a captured pass.
#include <gtest/gtest.h>

#include "gpu/devices.h"
#include "gpu/shard_run.h"
#include "models/shard_pool.h"
#include "src/hf/weights_load.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/machine/device.h"
#include "src/train/run/run.h"
#include "src/train/run/step_options.h"
#include "src/train/run/trainer.h"
#include "stand_in/device/device.h"
#include "train/run_files.h"

namespace lft::test::step_test {
using namespace lft::data;
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

using stand_in::Counts;
using stand_in::counts;

struct Way {
  const char* name;
  std::function<void(Recipe&)> set;
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

/// The same rows twice, under other weights.
void two_sources(Recipe& recipe) {
  const std::string path = recipe.data.train.path;
  recipe.data.train.path.clear();
  recipe.data.train.list = {{.path = path, .image_root = {}, .weight = 1},
                            {.path = path, .image_root = {}, .weight = 2}};
}

class StepCounts : public ::testing::TestWithParam<Way> {
 protected:
  Recipe recipe() const {
    Recipe recipe = files_.recipe("out");
    recipe.precision.compute = "bf16", recipe.model.base_dtype = "bf16";
    recipe.lora.dropout = 0.25;
    GetParam().set(recipe);
    return recipe;
  }
  const ShardRun files_{10};
};

/// After the first steps, in which memory is allocated and graphs are captured and verified.
TEST_P(StepCounts, OneReadAndNoCopyThatWaits) {
  Recipe recipe = this->recipe();
  recipe.train.grad_accum = 2;
  RunInputs inputs = open_inputs(recipe);
  ASSERT_EQ(inputs.device, stand_in::device());
  lft::train::Run run = make_run(std::move(inputs));
  StepOptions options = run_step_options(run);
  const std::unique_ptr<GraphPasses> passes = make_graph_passes(run);
  options.passes = passes.get();
  const std::unique_ptr<Loader> loader = start_loader(run, 0);
  std::vector<StepSamples> batches;
  for (int i = 0; i < 2; ++i) batches.push_back(loader->next());
  const Counts captured = stand_in::counts_in_captures();
  constexpr int kSteps = 9;
  for (int step = 0; step < kSteps; ++step) {
    std::optional<stand_in::MemoryGuard> guard;
    if (step + 1 == kSteps) guard.emplace();
    const Counts before = counts();
    const StepOutcome outcome =
        train_step({run.model.model, run.optimizer, run.scaler, run.schedule}, options,
                   batches[static_cast<size_t>(step % 2)], run.state);
    ASSERT_EQ(outcome.result, StepResult::kTaken) << outcome.reason;
    if (step < kSteps - 2) continue;
    const Counts of_step = counts() - before;
    EXPECT_EQ(of_step.host_reads, 1) << step;
    EXPECT_EQ(of_step.waits, 0) << step;
    EXPECT_EQ(of_step.pageable_copies, 0) << step;
    EXPECT_EQ(of_step.device_allocations, 0) << step;
  }
  const bool graphs = passes != nullptr;
  EXPECT_EQ(graphs, recipe.train.max_tokens_per_step > 0 && recipe.train.cuda_graphs == "auto");
  if (!graphs) return;
  for (const std::string& note : passes->graphs().take_notes()) {
    EXPECT_EQ(note.find("continuing without"), std::string::npos) << note;
  }
  const Counts in_captures = stand_in::counts_in_captures() - captured;
  EXPECT_EQ(in_captures.device_allocations, 0);
  EXPECT_GT(in_captures.allocations, 0);
}

/// The surrounding trainer adds no waits: logging, norms and watching use the values that the step
/// has read.
TEST_P(StepCounts, AWholeRunReadsOnceAStep) {
  Recipe recipe = this->recipe();
  recipe.train.max_steps = 8;
  Counts first, last;
  const auto look = [&](int64_t step, Optimizer&) {
    if (step == 5) first = counts();
    if (step == 8) last = counts();
  };
  ASSERT_EQ(train::train(recipe, {.gradients_ready = look}), 0);
  EXPECT_EQ((last - first).host_reads, 3);
  EXPECT_EQ((last - first).pageable_copies, 0);
}

/// Not for as many sequences as a step's micro-batches have together, 40 here: rounded up to 16.
TEST(PackedAttention, IsLaunchedForTheSequencesOfItsMicroBatch) {
  const ShardRun files(40);
  Recipe recipe = files.recipe("out");
  recipe.precision.compute = "bf16", recipe.model.base_dtype = "bf16";
  recipe.train.max_tokens_per_step = 256;
  recipe.train.batch_size = 4, recipe.train.grad_accum = 10, recipe.train.max_steps = 1;
  RunInputs inputs = open_inputs(recipe);
  lft::train::Run run = make_run(std::move(inputs));
  StepOptions options = run_step_options(run);
  const std::unique_ptr<GraphPasses> passes = make_graph_passes(run);
  ASSERT_NE(passes, nullptr);
  options.passes = passes.get();
  const Counts before = counts();
  const StepSamples samples = start_loader(run, 0)->next();
  const StepOutcome outcome = train_step({run.model.model, run.optimizer, run.scaler, run.schedule},
                                         options, samples, run.state);
  ASSERT_EQ(outcome.result, StepResult::kTaken) << outcome.reason;
  const int64_t layers = run.config.text.layers,
                passed = layers * static_cast<int64_t>(samples.micro.size());
  const Counts of_step = counts() - before;
  EXPECT_GT(of_step.attended_sequences, 0);
  EXPECT_LE(of_step.attended_sequences, 16 * passed);
}

/// Of answers before and after training, in deterministic mode.
TEST(Answers, AreGeneratedWithoutASortPerToken) {
  const ShardRun files(10);
  Recipe recipe = files.recipe("out");
  recipe.data.eval = recipe.data.train.path;
  recipe.train.max_steps = 2;
  recipe.log.answers = 4;
  const Counts before = counts();
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_GT((counts() - before).launches, 0);
  EXPECT_EQ((counts() - before).sorted_writes, 0);
  const at::Tensor places = at::arange(3, at::TensorOptions().device(stand_in::device()));
  at::Tensor held = at::zeros({5}, places.options());
  held.index_put_({places}, places);
  EXPECT_EQ((counts() - before).sorted_writes, 1);  // as the run left the mode
}

/// With graphs a run uses more memory: the arena's, which serves nothing else, and the copies that
/// verify one. If there is no more memory, graphs are given up and no step is.
TEST(Graphs, GiveWayWhereMemoryRunsOut) {
  const ShardRun files(10);
  std::optional<stand_in::MemoryLimit> limit;
  const auto run = [&](const std::string& graphs, bool tight) {
    Recipe recipe = files.recipe(graphs + (tight ? "-tight" : ""));
    recipe.precision.compute = "bf16", recipe.model.base_dtype = "bf16";
    recipe.train.max_steps = 5;
    recipe.train.max_tokens_per_step = 160;
    recipe.train.cuda_graphs = graphs;
    const auto nothing_more = [&](int64_t step, Optimizer&) {
      if (!tight) return;
      if (step == 1) limit.emplace(0);
      if (step == 5) limit.reset();
    };
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(train::train(recipe, {.gradients_ready = nothing_more}), 0);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("continuing without") != std::string::npos, tight) << said;
    return step_lines(recipe.output_dir);
  };
  const std::vector<Json> want = run("off", false);
  for (const bool tight : {false, true}) {
    const std::vector<Json> got = run("auto", tight);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {  // micro-batches are padded: as in test_runs.cpp
      const double loss = want[i]["loss"];
      EXPECT_NEAR(got[i]["loss"].get<double>(), loss, 8 * rounding(at::kBFloat16) * loss) << i + 1;
    }
  }
}

/// A graph reads DoRA's norms, which change with every update. Each step has the same rows, so that
/// all but the first two are replays.
TEST(Graphs, ReadTheNormsOfTheirStep) {
  const ShardRun files(4);
  const auto run = [&](const std::string& graphs) {
    Recipe recipe = files.recipe(graphs);
    recipe.precision.compute = "bf16", recipe.model.base_dtype = "bf16";
    recipe.lora.variant = "dora";
    recipe.train.max_steps = 8, recipe.train.batch_size = 4;
    recipe.train.max_tokens_per_step = 1024;
    recipe.train.cuda_graphs = graphs;
    recipe.optim.lr = 0.1;
    EXPECT_EQ(train::train(recipe), 0);
    return step_lines(recipe.output_dir);
  };
  const std::vector<Json> want = run("off"), got = run("auto");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const double loss = want[i]["loss"];
    EXPECT_NEAR(got[i]["loss"].get<double>(), loss, rounding(at::kBFloat16) * loss) << i + 1;
  }
}

/// The memory of a rank, which notes how often this one had waited for its device when it told the
/// others that it has written its slices.
class NotedMemory : public PooledMemory {
 public:
  using PooledMemory::PooledMemory;
  std::vector<uint64_t> sum(const std::vector<uint64_t>& own) override {
    waits_when_told = counts().waits;
    return own;
  }
  int64_t waits_when_told = 0;
};

TEST(Shards, AreWrittenBeforeTheOtherRanksAreTold) {
  const ShardRun files(1);
  const family::ModelConfig config = ModelDir::open(files.recipe("out").model.path).config;
  ShardPool pool;
  pool.device = stand_in::device();
  pool.parts.resize(1);
  const auto memory = std::make_shared<NotedMemory>(pool, 0);
  const int64_t before = counts().waits;
  random_model(config, at::kBFloat16, stand_in::device(), 1, {.shards = memory});
  EXPECT_GT(memory->waits_when_told, before);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, StepCounts,
    ::testing::Values(
        Way{"padded", [](Recipe&) {}},
        Way{"packed",
            [](Recipe& r) { r.train.max_tokens_per_step = 96, r.train.cuda_graphs = "off"; }},
        Way{"graphs", [](Recipe& r) { r.train.max_tokens_per_step = 96; }},
        Way{"graphs_with_trained_images",
            [](Recipe& r) {
              r.train.max_tokens_per_step = 96;
              r.lora.targets = {"llm:all-linear", "vision:all-linear", "projector:all-linear"};
              r.full.clear();
            }},
        Way{"graphs_of_two_sources",
            [](Recipe& r) {
              r.train.max_tokens_per_step = 96;
              two_sources(r);
            }},
        Way{"two_sources", [](Recipe& r) { two_sources(r); }},
        Way{"recomputed", [](Recipe& r) { r.train.activation_checkpointing = "block"; }},
        Way{"nf4_and_8_bits",
            [](Recipe& r) { r.model.base_dtype = "nf4", r.optim.name = "adamw8bit"; }},
        Way{"dora", [](Recipe& r) { r.lora.variant = "dora"; }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lft::test::step_test
