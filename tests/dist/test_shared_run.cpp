// Whole runs over 1, 2, 3 and 4 processes: the same bits, also with faults on the way.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <new>

#include "debug/stored_model.h"
#include "dist/processes.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/train/run/shared_run.h"
#include "support/poison.h"
#include "train/label_rows.h"
#include "train/pair_rows.h"
#include "train/spoil.h"

namespace {
std::atomic<bool> dies_in_a_gather = false;
}  // namespace

/// Replaces the system function: it may read half of the requested bytes and kill the process.
extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t from) {
  char path[64] = "";
  if (dies_in_a_gather &&
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1) > 0 &&
      std::string(path).starts_with("/memfd:lft-base")) {
    syscall(SYS_pread64, fd, to, bytes / 2, from);
    kill(getpid(), SIGKILL);
  }
  return syscall(SYS_pread64, fd, to, bytes, from);
}

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
  if (what.empty() || what == "stop") return {};
  const int64_t step = std::stoll(variable("LFT_TEST_STEP"));
  if (what == "gather") {  // the first after this step's passes
    return [step](int64_t now, train::Optimizer&) { dies_in_a_gather = now >= step; };
  }
  if (what == "interrupt") {
    return [step](int64_t now, train::Optimizer&) {
      if (now == step) raise(SIGINT);
    };
  }
  if (what == "inf") return test::spoil({step}, std::numeric_limits<float>::infinity());
  // recovered_oom: the step before it is not finite
  const auto inf =
      test::spoil({what == "oom" ? -1 : step - 1}, std::numeric_limits<float>::infinity());
  return [step, inf, left = std::stoll(variable("LFT_TEST_TIMES"))](
             int64_t now, train::Optimizer& optimizer) mutable {
    inf(now, optimizer);
    if (now == step && left-- > 0) throw std::bad_alloc();
  };
}

}  // namespace

/// The body of each process started by run_processes(); does nothing in a normal test run.
TEST(Rank, DISABLED_Trains) {
  if (variable("LFT_TEST_RECIPE").empty()) return;
  install_signal_handlers();  // as lft does: a write to a lost process must not end this one
  if (variable("LFT_TEST_PLANT") == "stop") raise(std::stoi(variable("LFT_TEST_STEP")));
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

/// Evaluated on answers other than the training ones; the best evaluation is kept.
void overfit(const TinyRun& run, Recipe& recipe) {
  Json rows = Json::parse(slurp(run.dir().file("rows.json")));
  for (Json& row : rows) row["conversations"][1]["value"] = std::string(24, 'z');
  run.dir().write("held_out.json", rows.dump());
  recipe.data.eval = run.dir().file("held_out.json");
  recipe.optim.lr = 0.03;
  recipe.train.eval_every_steps = 2;
  recipe.train.keep_best = "eval_loss";
}

/// Everything that two runs must have in common.
void expect_same(const Recipe& one, const Recipe& other, int64_t last = 8) {
  EXPECT_EQ(run_bytes(other.output_dir, last), run_bytes(one.output_dir, last)) << other.output_dir;
  EXPECT_EQ(timeless_metrics(other.output_dir), timeless_metrics(one.output_dir));
}

/// Its header promises more bytes than the file has.
void cut_image(const TinyRun& run, const std::string& name) {
  const std::string path = run.dir().file("images/" + name);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 40);
}

class SharedRun : public ::testing::TestWithParam<std::string> {};

TEST_P(SharedRun, HasTheBitsOfOneProcess) {
  const TinyRun run(/*rows=*/22);
  Recipe one = shared(run, "one");
  const bool packed = GetParam() == "packed" || GetParam() == "sharded_nf4";
  if (packed) one.train.max_tokens_per_step = one.data.max_tokens = 60;
  if (GetParam() == "best") overfit(run, one);
  if (GetParam() == "whole") one.full = {"all"}, one.lora.targets = {};
  if (packed) one.train.batch_size = 3;
  if (GetParam() == "kto") one.objective.name = "kto", one.data.train = write_labels(run);
  if (GetParam() == "dpo" || GetParam() == "sharded_dpo")
    one.objective.name = "dpo", one.data.train = write_pairs(run);
  if (one.objective.name != ObjectiveName::kSft) one.data.eval = one.data.train.path;
  if (GetParam() == "sharded_dpo") one.model.base_dtype = "nf4";
  if (GetParam() == "sharded_nf4") one.model.base_dtype = "nf4", one.precision.compute = "bf16";
  if (GetParam() == "sharded") one.train.activation_checkpointing = "every-2";
  if (GetParam().starts_with("sharded")) {  // a model with four layers
    one.model.path = LFT_SOURCE_DIR "/recipes/quickstart/model";
    one.train.max_steps = 4;
    one.train.eval_every_steps = 2;
  }
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
  if (GetParam() == "best") {
    ASSERT_LT(events(one.output_dir, "best").back()["step"].get<int64_t>(), 8)
        << timeless_metrics(one.output_dir);
  }
  for (const int64_t count : {2, 4}) {
    Recipe recipe = one;
    recipe.output_dir = run.dir().file("over" + std::to_string(count));
    if (GetParam().starts_with("sharded")) recipe.train.shard = "base";
    ASSERT_EQ(run_processes(recipe, count), zeros(count)) << said_by(recipe, 0);
    expect_same(one, recipe, one.train.max_steps);
    for (int64_t rank = 1; rank < count; ++rank) EXPECT_EQ(said_by(recipe, rank), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Of, SharedRun,
                         ::testing::Values("padded", "packed", "whole", "best", "skipping",
                                           "sharded", "sharded_nf4", "dpo", "kto", "sharded_dpo"),
                         [](const auto& info) { return info.param; });

TEST(SharedRuns, ANumberOfProcessesThatChangesOverResumptionsChangesNoBit) {
  const TinyRun run(/*rows=*/22);
  Recipe one = shared(run, "one"), recipe = shared(run, "changing");
  overfit(run, one);
  overfit(run, recipe);
  ASSERT_EQ(run_processes(one, 1), zeros(1));
  for (const int64_t count : {1, 2, 4, 1}) {
    const bool begun = std::filesystem::exists(recipe.output_dir);
    recipe.train.max_steps = begun ? recipe.train.max_steps + 2 : 2;
    ASSERT_EQ(run_processes(recipe, count, begun), zeros(count)) << said_by(recipe, 0);
  }
  EXPECT_EQ(run_bytes(recipe.output_dir, 8), run_bytes(one.output_dir, 8));
  EXPECT_EQ(events(recipe.output_dir, "eval"), events(one.output_dir, "eval"));
  EXPECT_NE(said_by(recipe, 0).find("saved by 4 processes, 1 continues"), std::string::npos);
}

/// During the run and after the last step; only one process receives the signal.
TEST(SharedRuns, AnEvaluationThatASignalComesBeforeIsDoneFirstByTheResumedRun) {
  const TinyRun run(/*rows=*/22);
  Recipe one = shared(run, "one");
  overfit(run, one);
  ASSERT_EQ(run_processes(one, 1), zeros(1));
  for (const int64_t step : {4, 8}) {
    Recipe two = one;
    two.output_dir = run.dir().file("two" + std::to_string(step));
    EXPECT_EQ(run_processes(two, 2, false, {.what = "interrupt", .step = step}),
              (std::vector<int>{130, 130}));
    EXPECT_EQ(events(two.output_dir, "eval").size(), static_cast<size_t>(step / 2 - 1));
    EXPECT_NE(said_by(two, 0).find("first does the evaluation of this step"), std::string::npos)
        << said_by(two, 0);
    ASSERT_EQ(run_processes(two, 2, /*resume=*/true), zeros(2)) << said_by(two, 0);
    EXPECT_EQ(run_bytes(two.output_dir, 8), run_bytes(one.output_dir, 8));
    EXPECT_EQ(events(two.output_dir, "eval"), events(one.output_dir, "eval"));
  }
}

/// While the reference is computed; only one process receives the signal.
TEST(SharedRuns, ASignalBeforeTheFirstStepStopsAll) {
  const TinyRun run(/*rows=*/22);
  Recipe recipe = shared(run, "stopped");
  without_eval(recipe);
  recipe.train.batch_size = 2;
  recipe.objective.name = "dpo";
  recipe.data.train = write_pairs(run);
  for (const auto& [signal, rank, code] : std::vector<std::tuple<int, int64_t, int>>{
           {SIGTERM, 0, 75}, {SIGUSR1, 1, 75}, {SIGINT, 1, 130}}) {
    EXPECT_EQ(run_processes(recipe, 2, false, {.what = "stop", .step = signal, .rank = rank}),
              (std::vector<int>{code, code}));
    EXPECT_EQ(error_blocks(recipe, 2), 0) << said_by(recipe, 0) << said_by(recipe, 1);
  }
  EXPECT_EQ(run_processes(recipe, 2), zeros(2)) << said_by(recipe, 0);
}

/// Each process evaluates its own rows; rank 0 reports all.
TEST(SharedRuns, AnEvaluationThatIsNotFiniteIsReportedAsByOneProcess) {
  const TinyRun run(/*rows=*/22);
  change_model(run, [](StoredTensors& tensors) { poison_token(tensors, 3 + 'z', 0, 6e4f); });
  Json rows = Json::parse(slurp(run.dir().file("rows.json")));
  for (const size_t row : {5, 18}) rows[row]["conversations"][0]["value"] = "<image>\nA z?";
  Recipe one = shared(run, "one");
  one.precision.compute = "fp16";
  one.full.clear();
  one.lora.targets = {"llm:v_proj"};
  one.data.eval = run.dir().write("eval.json", rows.dump());
  one.train.keep_best = "exact";
  Recipe two = one;
  two.output_dir = run.dir().file("two");
  ASSERT_EQ(run_processes(one, 1), zeros(1)) << said_by(one, 0);
  ASSERT_EQ(run_processes(two, 2), zeros(2)) << said_by(two, 0);
  const auto found = [](const Recipe& recipe) {
    std::vector<std::string> lines;
    for (const Json& event : events(recipe.output_dir, "eval_not_finite")) {
      for (const char* part : {"step", "what", "where"}) lines.push_back(event[part].dump());
    }
    return lines;
  };
  const std::vector<std::string> wanted = found(one);
  ASSERT_FALSE(wanted.empty());
  EXPECT_NE(wanted[2].find("the first of 2 such rows of 22"), std::string::npos) << wanted[2];
  EXPECT_EQ(found(two), wanted);
  EXPECT_TRUE(events(two.output_dir, "best").empty());
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
    recipe.precision.loss_scale.init = 1024;  // far from an overflow itself
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

/// The first and the last of two and of four processes.
std::vector<std::pair<int64_t, int64_t>> ends() { return {{2, 0}, {2, 1}, {4, 0}, {4, 3}}; }

TEST(SharedRuns, MemoryThatOneLacksEndsAllWithItsBlock) {
  const TinyRun run(/*rows=*/22);
  for (const auto& [count, rank] : ends()) {
    const Recipe recipe = shared(run, "out" + std::to_string(10 * count + rank));
    const Plant plant{.what = "oom", .step = 3, .rank = rank};
    EXPECT_EQ(run_processes(recipe, count, false, plant),
              std::vector<int>(static_cast<size_t>(count), 6));
    EXPECT_EQ(error_blocks(recipe, count), 1) << said_by(recipe, 0) << said_by(recipe, rank);
    EXPECT_NE(said_by(recipe, 0).find("out of memory"), std::string::npos) << said_by(recipe, 0);
  }
}

/// After a recovery all ranks recompute, then all split, though only one ran out of memory.
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

/// Three processes add three or four gradients in another order than one does. For n terms the
/// float32 sums differ by at most 2 (n - 1) u times the sum of their magnitudes, which are below
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

/// Steps before the failure are saved, as in one process.
TEST(SharedRuns, ASampleThatOneCannotReadEndsAllWithItsBlock) {
  for (const auto& [count, rank] : ends()) {
    const TinyRun run(/*rows=*/22);
    Recipe recipe = shared(run, "out");
    recipe.data.shuffle = false;
    recipe.train.worst_first = false;
    without_eval(recipe);
    const std::string bad = rank == 0 ? "red12.bmp" : "red15.bmp";  // used in step 4
    cut_image(run, bad);
    EXPECT_EQ(run_processes(recipe, count), std::vector<int>(static_cast<size_t>(count), 3));
    EXPECT_EQ(error_blocks(recipe, count), 1) << said_by(recipe, 0) << said_by(recipe, rank);
    EXPECT_NE(said_by(recipe, 0).find(bad), std::string::npos) << said_by(recipe, 0);
    EXPECT_TRUE(std::filesystem::exists(recipe.output_dir + "/checkpoints/step-2"))
        << said_by(recipe, 0);
    EXPECT_TRUE(std::filesystem::exists(recipe.output_dir + "/adapter"));
  }
}

/// Rank 0's error; only rank 0 writes.
TEST(SharedRuns, ADiskThatIsFullEndsAllWithOneBlock) {
  const TinyRun run(/*rows=*/22);
  const Recipe one = shared(run, "one");
  ASSERT_EQ(run_processes(one, 1), zeros(1));
  for (const int64_t count : {2, 4}) {
    const Recipe recipe = shared(run, "out" + std::to_string(count));
    const Plant full{
        .rank = 0,
        .variables = {"LD_PRELOAD=" LFT_BINARY_DIR "/tests/liblft_fault_shim.so",
                      "LFT_SHIM_ROOT=" + std::filesystem::canonical(run.dir().path()).string() +
                          "/out" + std::to_string(count),
                      "LFT_SHIM_MODE=enospc", "LFT_SHIM_AT=80",
                      "LFT_SHIM_COUNT=" + run.dir().file("calls" + std::to_string(count))}};
    EXPECT_EQ(run_processes(recipe, count, false, full),
              std::vector<int>(static_cast<size_t>(count), 6));
    EXPECT_EQ(error_blocks(recipe, count), 1) << said_by(recipe, 0) << said_by(recipe, 1);
    EXPECT_NE(said_by(recipe, 0).find("No space left"), std::string::npos) << said_by(recipe, 0);
    ASSERT_EQ(run_processes(recipe, count, /*resume=*/true), zeros(count)) << said_by(recipe, 0);
    EXPECT_EQ(run_bytes(recipe.output_dir, 8), run_bytes(one.output_dir, 8));
  }
}

/// The others can still read its part of the shared memory; they save and name it.
TEST(SharedRuns, AProcessThatIsKilledInTheMidstOfAGatherIsNamed) {
  const TinyRun run(/*rows=*/22);
  for (const auto& [count, rank] : {std::pair<int64_t, int64_t>{2, 1}, {4, 0}}) {
    Recipe recipe = shared(run, "out" + std::to_string(count));
    recipe.model.path = LFT_SOURCE_DIR "/recipes/quickstart/model";
    recipe.train.shard = "base";
    recipe.checkpoint.every_steps = 1000;
    without_eval(recipe);
    std::vector<int> expected(static_cast<size_t>(count), 6);
    expected[static_cast<size_t>(rank)] = 128 + SIGKILL;
    EXPECT_EQ(run_processes(recipe, count, false, {.what = "gather", .step = 3, .rank = rank}),
              expected);
    EXPECT_EQ(error_blocks(recipe, count), 1) << said_by(recipe, 0) << said_by(recipe, 1);
    const std::string said = said_by(recipe, rank == 0 ? 1 : 0);
    EXPECT_NE(said.find("a process of the run is gone"), std::string::npos) << said;
    EXPECT_NE(said.find("rank " + std::to_string(rank) + " on "), std::string::npos) << said;
    EXPECT_TRUE(std::filesystem::exists(recipe.output_dir + "/checkpoints/step-" +
                                        (rank == 0 ? "0" : "3")));
  }
}

TEST(SharedRuns, ABaseOfOneProcessIsWholeAndANoticeSaysSo) {
  const TinyRun run(/*rows=*/22);
  Recipe none = shared(run, "none"), base = shared(run, "base");
  none.train.max_steps = base.train.max_steps = 2;
  base.train.shard = "base";
  ASSERT_EQ(run_processes(none, 1), zeros(1));
  ASSERT_EQ(run_processes(base, 1), zeros(1)) << said_by(base, 0);
  expect_same(none, base, 2);
  const std::string said = said_by(base, 0), notice = "this one keeps the whole base, as with none";
  EXPECT_NE(said.find(notice), std::string::npos) << said;
  EXPECT_EQ(said.find(notice), said.rfind(notice));
}

TEST(SharedRuns, FewerMicroBatchesThanProcessesAreRefusedWithTheValueToSet) {
  const TinyRun run(/*rows=*/22);
  Recipe recipe = shared(run, "out");
  recipe.train.batch_size = 4;
  recipe.train.grad_accum = 1;
  EXPECT_EQ(run_processes(recipe, 2), (std::vector<int>{2, 2}));
  EXPECT_EQ(error_blocks(recipe, 2), 1);
  EXPECT_NE(said_by(recipe, 0).find("set train.grad_accum to 2 and train.batch_size to 2"),
            std::string::npos)
      << said_by(recipe, 0);
  EXPECT_FALSE(std::filesystem::exists(recipe.output_dir));
}

}  // namespace
}  // namespace lft::shared_run_test
