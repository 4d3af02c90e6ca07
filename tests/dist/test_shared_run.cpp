// Whole runs over 1, 2, 3 and 4 processes: the same bits, whatever happens on the way.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <new>

#include "dist/processes.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/train/run/shared_run.h"
#include "train/spoil.h"

namespace lft::shared_run_test {
using namespace lft::recipe;
using namespace lft::test;
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// For TrainOptions::gradients_ready.
std::function<void(int64_t, train::Optimizer&)> planted() {
  const std::string what = variable("LFT_TEST_PLANT");
  if (what.empty()) return {};
  const int64_t step = std::stoll(variable("LFT_TEST_STEP"));
  if (what == "inf") return test::spoil({step}, std::numeric_limits<float>::infinity());
  // recovered_oom: the step before it is not finite.
  const auto inf =
      test::spoil({what == "oom" ? -1 : step - 1}, std::numeric_limits<float>::infinity());
  return [step, inf, left = std::stoll(variable("LFT_TEST_TIMES"))](
             int64_t now, train::Optimizer& optimizer) mutable {
    inf(now, optimizer);
    if (now == step && left-- > 0) throw std::bad_alloc();
  };
}

}  // namespace

/// The body of each process that run_processes() starts; nothing in a run of the tests themselves.
TEST(Rank, DISABLED_Trains) {
  if (variable("LFT_TEST_RECIPE").empty()) return;
  const auto read = [] { return read_recipe(variable("LFT_TEST_RECIPE")); };
  const train::TrainOptions options{.resume = !variable("LFT_TEST_RESUME").empty(),
                                    .gradients_ready = planted()};
  int code = 0;
  try {
    const dist::Place place = dist::read_place(dist::process_environment());
    code = place.alone() ? train::train(read(), options) : train::train_as(place, read, options);
  } catch (const Error& error) {
    if (!is_quiet()) std::fputs(format_error(error).c_str(), stderr);
    code = static_cast<int>(error.kind());
  }
  std::fflush(nullptr);
  std::_Exit(code);
}

namespace {

/// Eight steps over 22 rows, four of them a step: an epoch ends with a step of two micro-batches.
Recipe shared(const TinyRun& run, const std::string& out) {
  Recipe recipe = run.recipe(out);
  recipe.lora.dropout = 0.25;
  recipe.optim.schedule = "constant";
  recipe.train.batch_size = 1;
  recipe.train.grad_accum = 4;
  recipe.train.max_steps = 8;
  recipe.train.eval_every_steps = 4;
  recipe.log.layer_grad_norms_every = recipe.log.layer_activation_norms_every = 3;
  recipe.checkpoint = {.every_steps = 2, .keep = 100, .at_step_zero = true};
  recipe.dist.timeout_s = 60;
  return recipe;
}

void without_eval(Recipe& recipe) {
  recipe.data.eval.clear();
  recipe.train.eval_every_steps = 0;
}

const std::vector<int> zeros(int64_t count) { return std::vector<int>(static_cast<size_t>(count)); }

/// Everything that two runs must agree in.
void expect_same(const Recipe& one, const Recipe& other, int64_t last = 8) {
  EXPECT_EQ(run_bytes(other.output_dir, last), run_bytes(one.output_dir, last)) << other.output_dir;
  EXPECT_EQ(timeless_metrics(other.output_dir), timeless_metrics(one.output_dir));
}

/// Its header says more than it holds.
void cut_image(const TinyRun& run, const std::string& name) {
  const std::string path = run.dir().file("images/" + name);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 40);
}

class SharedRun : public ::testing::TestWithParam<std::string> {};

TEST_P(SharedRun, HasTheBitsOfOneProcess) {
  const TinyRun run(/*rows=*/22);
  Recipe one = shared(run, "one");
  if (GetParam() == "packed") one.train.max_tokens_per_step = one.data.max_tokens = 60;
  if (GetParam() == "whole") one.full = {"all"}, one.lora.targets = {};
  if (GetParam() == "packed") one.train.batch_size = 3;
  if (GetParam() == "skipping") {  // a micro-batch whose only sample cannot be read
    cut_image(run, "red3.bmp");
    cut_image(run, "blue14.bmp");
    one.data.on_bad_sample = "skip";
    one.train.worst_first = false;
    without_eval(one);
  }
  ASSERT_EQ(run_processes(one, 1), zeros(1)) << said_by(one, 0);
  ASSERT_EQ(events(one.output_dir, "eval").empty(), GetParam() == "skipping");
  ASSERT_EQ(events(one.output_dir, "sample_skipped").empty(), GetParam() != "skipping");
  for (const int64_t count : {2, 4}) {
    Recipe recipe = one;
    recipe.output_dir = run.dir().file("over" + std::to_string(count));
    ASSERT_EQ(run_processes(recipe, count), zeros(count)) << said_by(recipe, 0);
    expect_same(one, recipe);
    for (int64_t rank = 1; rank < count; ++rank) EXPECT_EQ(said_by(recipe, rank), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Of, SharedRun, ::testing::Values("padded", "packed", "whole", "skipping"),
                         [](const auto& info) { return info.param; });

TEST(SharedRuns, ANumberOfProcessesThatChangesOverResumptionsChangesNoBit) {
  const TinyRun run(/*rows=*/22);
  const Recipe one = shared(run, "one");
  ASSERT_EQ(run_processes(one, 1), zeros(1));
  Recipe recipe = shared(run, "changing");
  for (const int64_t count : {1, 2, 4, 1}) {
    const bool begun = std::filesystem::exists(recipe.output_dir);
    recipe.train.max_steps = begun ? recipe.train.max_steps + 2 : 2;
    ASSERT_EQ(run_processes(recipe, count, begun), zeros(count)) << said_by(recipe, 0);
  }
  EXPECT_EQ(run_bytes(recipe.output_dir, 8), run_bytes(one.output_dir, 8));
  EXPECT_NE(said_by(recipe, 0).find("saved by 4 processes, 1 goes on"), std::string::npos);
}

struct Bad {
  std::string name, precision, event;
  int64_t processes;
};
void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }

class PlantedOnTheLast : public ::testing::TestWithParam<Bad> {};

TEST_P(PlantedOnTheLast, AGradientThatIsNotFiniteIsEverybodys) {
  const TinyRun run(/*rows=*/22);
  const auto make = [&](const std::string& out) {
    Recipe recipe = shared(run, out);
    recipe.precision.compute = GetParam().precision;
    recipe.precision.loss_scale.init = 1024;  // far from an overflow of its own
    without_eval(recipe);
    return recipe;
  };
  const Plant plant{.what = "inf", .step = 3};
  const Recipe one = make("one"), several = make("several");
  ASSERT_EQ(run_processes(one, 1, false, plant), zeros(1)) << said_by(one, 0);
  ASSERT_EQ(events(one.output_dir, GetParam().event).size(), 1u);
  ASSERT_EQ(run_processes(several, GetParam().processes, false, plant), zeros(GetParam().processes))
      << said_by(several, 0);
  expect_same(one, several);
}

INSTANTIATE_TEST_SUITE_P(Of, PlantedOnTheLast,
                         ::testing::Values(Bad{"skipped", "fp16", "step_skipped", 4},
                                           Bad{"recovered", "bf16", "fp32_recovery", 2}),
                         [](const auto& info) { return info.param.name; });

TEST(SharedRuns, ASecondStepThatIsNotFiniteEndsAllWithOneBlock) {
  const TinyRun run(/*rows=*/22);
  Recipe recipe = shared(run, "out");
  recipe.precision.recovery = "stop";
  without_eval(recipe);
  EXPECT_EQ(run_processes(recipe, 2, false, {.what = "inf", .step = 5}), (std::vector<int>{5, 5}));
  EXPECT_EQ(error_blocks(recipe, 2), 1) << said_by(recipe, 0) << said_by(recipe, 1);
  EXPECT_NE(said_by(recipe, 0).find("a gradient is not finite"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(recipe.output_dir + "/incidents/step-5"));
}

TEST(SharedRuns, MemoryThatOneLacksEndsAllWithItsBlock) {
  const TinyRun run(/*rows=*/22);
  const Recipe recipe = shared(run, "out");
  EXPECT_EQ(run_processes(recipe, 2, false, {.what = "oom", .step = 3}), (std::vector<int>{6, 6}));
  EXPECT_EQ(error_blocks(recipe, 2), 1) << said_by(recipe, 0) << said_by(recipe, 1);
  EXPECT_NE(said_by(recipe, 0).find("out of memory"), std::string::npos) << said_by(recipe, 0);
}

/// After a recovery all recompute, then all split, though one alone ran out of memory.
TEST(SharedRuns, MemoryThatOneLacksAfterARecoveryIsSparedByAll) {
  const TinyRun run(/*rows=*/22);
  const auto make = [&](const std::string& out) {
    Recipe recipe = shared(run, out);
    recipe.precision.compute = "bf16";
    without_eval(recipe);
    recipe.train.batch_size = 2;
    recipe.train.grad_accum = 2;
    return recipe;
  };
  const Plant plant{.what = "recovered_oom", .step = 3, .times = 2};
  const Recipe one = make("one"), two = make("two");
  ASSERT_EQ(run_processes(one, 1, false, plant), zeros(1)) << said_by(one, 0);
  ASSERT_EQ(events(one.output_dir, "memory_spared").size(), 2u);
  ASSERT_EQ(run_processes(two, 2, false, plant), zeros(2)) << said_by(two, 0);
  expect_same(one, two);
}

/// Three processes add three or four gradients in another order than one does. Of n terms the
/// float32 sums differ by at most 2 (n - 1) u times the sum of their sizes, which here are below
/// eight times the norm of the sum; AdamW with eps 1, above every gradient, moves a weight by no
/// more than lr times its gradient's error; and a loss changes by its gradient's norm times that.
TEST(SharedRuns, ThreeProcessesTrainTheSameUpToRounding) {
  const TinyRun run(/*rows=*/22);
  const auto make = [&](const std::string& out) {
    Recipe recipe = shared(run, out);
    recipe.optim.eps = 1;
    return recipe;
  };
  const Recipe one = make("one"), three = make("three");
  ASSERT_EQ(run_processes(one, 1), zeros(1));
  ASSERT_EQ(run_processes(three, 3), zeros(3)) << said_by(three, 0);
  EXPECT_NE(said_by(three, 0).find("3 processes add gradients in another order"),
            std::string::npos);
  const std::vector<Json> a = step_lines(one.output_dir), b = step_lines(three.output_dir);
  ASSERT_EQ(a.size(), b.size());
  constexpr double kUnit = 0x1p-24;
  double moved = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i]["ids_hash"], b[i]["ids_hash"]);  // every id of an epoch once, in its place
    const double loss = a[i]["loss"], norm = a[i]["grad_norm"], lr = a[i]["lr"];
    EXPECT_NEAR(loss, b[i]["loss"].get<double>(), moved * norm + 64 * kUnit * loss) << i;
    moved += lr * 2 * 3 * kUnit * 8 * norm;
  }
}

/// What was learnt before it is kept, as in one process.
TEST(SharedRuns, ASampleThatOneCannotReadEndsAllWithItsBlock) {
  const TinyRun run(/*rows=*/22);
  Recipe recipe = shared(run, "out");
  recipe.data.shuffle = false;
  recipe.train.worst_first = false;
  without_eval(recipe);
  cut_image(run, "green10.bmp");  // in step 3, of the last process
  EXPECT_EQ(run_processes(recipe, 2), (std::vector<int>{3, 3}));
  EXPECT_EQ(error_blocks(recipe, 2), 1) << said_by(recipe, 0) << said_by(recipe, 1);
  EXPECT_NE(said_by(recipe, 0).find("green10.bmp"), std::string::npos) << said_by(recipe, 0);
  EXPECT_TRUE(std::filesystem::exists(recipe.output_dir + "/checkpoints/step-2"));
  EXPECT_TRUE(std::filesystem::exists(recipe.output_dir + "/adapter"));
}

TEST(SharedRuns, ADiskThatIsFullEndsAllWithOneBlock) {
  const TinyRun run(/*rows=*/22);
  const Recipe one = shared(run, "one"), recipe = shared(run, "out");
  const std::string path = std::filesystem::canonical(run.dir().path()) / "out";
  EXPECT_EQ(run_processes(recipe, 2, false, {},
                          {"LD_PRELOAD=" LFT_BINARY_DIR "/tests/liblft_fault_shim.so",
                           "LFT_SHIM_ROOT=" + path, "LFT_SHIM_MODE=enospc", "LFT_SHIM_AT=40",
                           "LFT_SHIM_COUNT=" + run.dir().file("calls")}),
            (std::vector<int>{6, 6}));
  EXPECT_EQ(error_blocks(recipe, 2), 1) << said_by(recipe, 0) << said_by(recipe, 1);
  EXPECT_NE(said_by(recipe, 0).find("No space left"), std::string::npos) << said_by(recipe, 0);
  ASSERT_EQ(run_processes(one, 1), zeros(1));
  ASSERT_EQ(run_processes(recipe, 2, /*resume=*/true), zeros(2)) << said_by(recipe, 0);
  EXPECT_EQ(run_bytes(recipe.output_dir, 8), run_bytes(one.output_dir, 8));
}

TEST(SharedRuns, FewerMicroBatchesThanProcessesAreRefusedWithTheValueToSet) {
  const TinyRun run(/*rows=*/22);
  Recipe recipe = shared(run, "out");
  recipe.train.batch_size = 4;
  recipe.train.grad_accum = 1;
  EXPECT_EQ(run_processes(recipe, 2), (std::vector<int>{2, 2}));
  EXPECT_EQ(error_blocks(recipe, 2), 1);
  EXPECT_NE(said_by(recipe, 0).find("set train.grad_accum to 2 (and train.batch_size to 2"),
            std::string::npos)
      << said_by(recipe, 0);
  EXPECT_FALSE(std::filesystem::exists(recipe.output_dir));
}

}  // namespace
}  // namespace lft::shared_run_test
