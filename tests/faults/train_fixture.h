// A short run of the built lft in a separate folder, to be signalled, killed and resumed, and the
// bytes it must end with.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "src/checkpoint/checkpoint.h"
#include "support/child.h"
#include "train/run_files.h"

namespace lft::test {
using namespace lft::io;
using namespace lft::recipe;

class TrainFaults : public ::testing::Test {
 protected:
  /// 40 steps with dropout, accumulation, an evaluation every 10 and a checkpoint every 4 of them;
  /// about a second.
  static Recipe recipe(const std::string& out) {
    Recipe recipe = run().recipe(out);
    recipe.lora.dropout = 0.1;
    recipe.train.batch_size = 2;
    recipe.train.grad_accum = 2;
    recipe.train.max_steps = kSteps;
    recipe.train.eval_every_steps = 10;
    recipe.checkpoint = {.every_steps = 4, .keep = 2, .at_step_zero = true};
    return recipe;
  }

  std::unique_ptr<Child> start(const Recipe& recipe, bool resume,
                               const std::vector<std::string>& environment = {}) {
    const std::string file = recipe.output_dir + ".yaml";
    write_file_atomic(file, dump_recipe(recipe));
    std::vector<std::string> arguments = {LFT_BINARY_DIR "/lft", "train", file};
    if (resume) arguments.push_back("--resume");
    std::vector<std::string> variables = {"OMP_NUM_THREADS=1"};
    variables.insert(variables.end(), environment.begin(), environment.end());
    return std::make_unique<Child>(arguments, recipe.output_dir + ".out",
                                   recipe.output_dir + ".err", variables);
  }
  int finish(const Recipe& recipe, bool resume) { return start(recipe, resume)->wait(); }
  static std::string errors(const Recipe& recipe) { return slurp(recipe.output_dir + ".err"); }

  /// The result of an uninterrupted run; created once.
  const RunBytes& expected() {
    static const RunBytes bytes = [this] {
      const Recipe whole = recipe("whole");
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(finish(whole, false), 0) << errors(whole);
      whole_ms() = std::chrono::duration_cast<std::chrono::milliseconds>(
                       std::chrono::steady_clock::now() - begin)
                       .count();
      return run_bytes(whole.output_dir, kSteps);
    }();
    return bytes;
  }

  /// Sleeps for a random part of the duration of the uninterrupted run.
  template <class Random>
  void sleep_into_a_run(Random& random) {
    expected();
    std::this_thread::sleep_for(std::chrono::milliseconds(
        static_cast<int64_t>(random() % static_cast<uint64_t>(whole_ms() + 1))));
  }
  static int64_t& whole_ms() {
    static int64_t milliseconds = 0;
    return milliseconds;
  }

  /// Each step once, and the same bytes as the uninterrupted run.
  void expect_whole(const Recipe& recipe) {
    const RunBytes bytes = run_bytes(recipe.output_dir, kSteps);
    EXPECT_EQ(bytes.adapter, expected().adapter);
    EXPECT_EQ(bytes.weights, expected().weights);
    EXPECT_EQ(bytes.moments, expected().moments);
    EXPECT_EQ(bytes.losses, expected().losses);
  }

  static const TinyRun& run() {
    static const TinyRun run;
    return run;
  }
  static constexpr int64_t kSteps = 40;
};

}  // namespace lft::test
