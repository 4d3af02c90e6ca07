// Free memory is returned between train and eval, and not between two steps.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <vector>

#include "src/train/run/trainer.h"
#include "train/tiny_run.h"

namespace {
std::atomic<int> given_back = 0;
}

/// Replaces the C library's function, which empties a CPU's cache as emptyCache() does for a
/// GPU.
extern "C" int malloc_trim(size_t) noexcept {
  ++given_back;
  return 0;
}

namespace lft::cache_test {
using namespace lft::recipe;
using namespace lft::train;
namespace {

/// How often memory was returned before each step, counted from the first.
std::vector<int> counts(Recipe recipe) {
  std::vector<int> counts;
  const auto count = [&](int64_t, Optimizer&) {
    counts.push_back(given_back - (counts.empty() ? 0 : counts.front()));
  };
  EXPECT_EQ(train::train(recipe, {.gradients_ready = count}), 0);
  counts.front() = 0;
  return counts;
}

TEST(Cache, IsEmptiedAroundAnEvaluationAlone) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("plain");
  recipe.checkpoint.every_steps = 2;
  EXPECT_EQ(counts(recipe), (std::vector<int>{0, 0, 0, 0, 0, 0}));
  recipe = run.recipe("evaluated");
  recipe.train.eval_every_steps = 2;
  EXPECT_EQ(counts(recipe), (std::vector<int>{0, 0, 2, 2, 4, 4}));
}

}  // namespace
}  // namespace lft::cache_test
