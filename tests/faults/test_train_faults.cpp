// Whole runs of the built lft with a failing disk, a full disk, or a killed process: guarantees A1,
// A3, A4 and A5 end to end.
#include <numeric>

#include "faults/support.h"
#include "faults/train_fixture.h"

namespace lft::test::train_faults_test {
using namespace lft::checkpoint;
using namespace lft::io;
using namespace lft::recipe;
namespace {

/// A short run with saves after steps 0, 3, 6, 9 and 10.
class TrainDisk : public TrainFaults {
 protected:
  static constexpr int64_t kLast = 10;
  static Recipe short_recipe(const std::string& out) {
    Recipe recipe = TrainFaults::recipe(out);
    recipe.train.max_steps = kLast;
    recipe.train.eval_every_steps = 5;
    recipe.checkpoint.every_steps = 3;
    return recipe;
  }
  static std::string command(const Recipe& recipe, bool resume) {
    const std::string file = recipe.output_dir + ".yaml";
    write_file_atomic(file, dump_recipe(recipe));
    return std::string(LFT_BINARY_DIR "/lft train ") + file + (resume ? " --resume" : "");
  }
  static Shimmed launch(const Recipe& recipe, const std::string& mode, long at) {
    return run_shimmed(command(recipe, false), {.root = recipe.output_dir, .mode = mode, .at = at});
  }
  const RunBytes& whole() {
    static const RunBytes bytes = [] {
      const Recipe recipe = short_recipe("short-whole");
      const Shimmed ran = launch(recipe, "count", 0);
      EXPECT_EQ(ran.code, 0) << ran.err;
      calls_ = ran.calls;
      return run_bytes(recipe.output_dir, kLast);
    }();
    return bytes;
  }
  /// Every stride-th call, with a different phase per mode; all of them with LFT_FAULTS=all.
  static std::vector<long> points(long phase) {
    const char* const all = std::getenv("LFT_FAULTS");
    const long stride = all != nullptr && std::string(all) == "all" ? 1 : std::max(1L, calls_ / 12);
    std::vector<long> found;
    for (long at = 1 + phase % stride; at <= calls_; at += stride) found.push_back(at);
    return found;
  }
  void expect_resumes(const Recipe& recipe, long at) {
    const Shimmed again =
        run_shimmed(command(recipe, true), {.root = "/nonexistent", .mode = "count", .at = 0});
    ASSERT_EQ(again.code, 0) << at << "\n" << again.err;
    EXPECT_EQ(run_bytes(recipe.output_dir, kLast), whole()) << at;
  }
  static void expect_no_leftover(const Recipe& recipe) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(recipe.output_dir)) {
      EXPECT_EQ(entry.path().filename().string().rfind(".tmp-", 0), std::string::npos)
          << entry.path();
    }
  }
  static long calls_;
};
long TrainDisk::calls_ = 0;

TEST_F(TrainDisk, KilledOrCutFromPowerAnywhere) {  // A1
  whole();
  long phase = 0;
  for (const char* mode : {"kill", "power", "powerdata"}) {
    phase += 3;
    for (const long at : points(phase)) {
      const Recipe recipe = short_recipe(std::string(mode) + "-at-" + std::to_string(at));
      const Shimmed ran = launch(recipe, mode, at);
      ASSERT_EQ(ran.code, 128 + SIGKILL) << mode << " " << at << "\n" << ran.err;
      expect_resumes(recipe, at);
      std::filesystem::remove_all(recipe.output_dir);
    }
  }
}

TEST_F(TrainDisk, FullOrFailing) {  // A3, A5
  whole();
  for (const char* mode : {"enospc", "eio"}) {
    for (const long at : points(5)) {
      const Recipe recipe = short_recipe(std::string(mode) + "-at-" + std::to_string(at));
      const Shimmed ran = launch(recipe, mode, at);
      // A failure to delete an old checkpoint is a warning; every other failure ends the run.
      ASSERT_TRUE(ran.code == 6 || (ran.code == 0 && ran.err.find("warning:") != std::string::npos))
          << mode << " " << at << "\n"
          << ran.err;
      EXPECT_EQ(ran.errors(), ran.code == 6 ? 1 : 0) << ran.err;
      for (const CheckpointStatus& checkpoint :
           list_checkpoints(recipe.output_dir + "/checkpoints", /*verify=*/true)) {
        EXPECT_EQ(checkpoint.fault, "") << mode << " " << at;
      }
      if (std::filesystem::exists(recipe.output_dir)) expect_no_leftover(recipe);
      expect_resumes(recipe, at);
      std::filesystem::remove_all(recipe.output_dir);
    }
  }
}

TEST_F(TrainDisk, ShortAndInterruptedTransfersChangeNothing) {  // A5
  whole();
  for (const char* mode : {"short", "eintr"}) {
    for (const long at : points(7)) {
      const Recipe recipe = short_recipe(std::string(mode) + "-at-" + std::to_string(at));
      const Shimmed ran = launch(recipe, mode, at);
      ASSERT_EQ(ran.code, 0) << mode << " " << at << "\n" << ran.err;
      EXPECT_EQ(run_bytes(recipe.output_dir, kLast), whole()) << mode << " " << at;
      std::filesystem::remove_all(recipe.output_dir);
    }
  }
}

TEST_F(TrainDisk, TooSmallForTheCheckpointsIsToldBeforeTheWeightsLoad) {  // A4
  const Recipe recipe = short_recipe("small");
  const std::string free = "env LFT_SHIM_FREE=";
  const Fault none{.root = recipe.output_dir, .mode = "count", .at = 0};
  // 0.0056 M parameters: weights and two moments of three checkpoints, the adapter, and 4 MiB for
  // the rest.
  const Shimmed ran = run_shimmed(free + "4300000 " + command(recipe, false), none);
  EXPECT_EQ(ran.code, 6) << ran.err;
  EXPECT_EQ(ran.errors(), 1);
  EXPECT_NE(ran.err.find("too small for this run's checkpoints"), std::string::npos) << ran.err;
  EXPECT_EQ(ran.out.find("model "), std::string::npos) << ran.out;
  EXPECT_FALSE(std::filesystem::exists(recipe.output_dir));
  EXPECT_EQ(run_shimmed(free + "4500000 " + command(recipe, false), none).code, 0);
}

}  // namespace
}  // namespace lft::test::train_faults_test
