// A step on a CPU reuses the memory that the one before freed: it has no page faults.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "gpu/shard_run.h"
#include "src/train/run/trainer.h"

namespace lft::page_faults_test {
using namespace lft::recipe;
using namespace lft::test;
using namespace lft::train;
namespace {

int64_t faults() {
  rusage use = {};
  getrusage(RUSAGE_SELF, &use);
  return use.ru_minflt;
}

/// Per step, of eight steps.
int64_t faults_of_a_step() {
  nlohmann::json config =
      TinyLlava{.image_token = 260, .vocab = 264, .max_positions = 512}.config();
  config["text_config"]["hidden_size"] = 256;
  config["text_config"]["intermediate_size"] = 1024;
  const ShardRun files(config, /*rows=*/16, /*text=*/80);
  Recipe recipe = files.recipe("out");
  recipe.model.init = "random";
  recipe.data.shuffle = false;
  recipe.train.batch_size = 16, recipe.train.max_steps = 14;
  int64_t before = 0, after = 0;
  const auto look = [&](int64_t step, Optimizer&) {
    if (step == 6) before = faults();
    if (step == 14) after = faults();
  };
  if (train::train(recipe, {.gradients_ready = look}) != 0) return INT64_MAX;
  return (after - before) / 8;
}

/// In a process of this program that has run no other test: its heap is new.
TEST(PageFaults, AreNotThoseOfEveryStepsActivations) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The gate, up and SwiGLU outputs of two layers alone have this many pages in a step.
  constexpr int64_t kPages = 2 * 3 * (16 * 90 * 1024 * 4) / 4096;
  EXPECT_EXIT(
      {
        const int64_t found = faults_of_a_step();
        fprintf(stderr, "%ld page faults a step\n", static_cast<long>(found));
        _exit(found < kPages / 20 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "page faults a step");
}

}  // namespace
}  // namespace lft::page_faults_test
