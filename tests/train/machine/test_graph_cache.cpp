// Only a graph that runs out of memory during its verification is given up, and the work runs as
// without graphs. On an arena whose graphs run the bodies directly; tests/gpu checks that a CUDA
// graph launches the body's kernels.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/common/error.h"
#include "src/train/machine/graph_cache.h"
#include "support/counting_allocator.h"
#include "train/faulty_arena.h"

namespace lft::graph_cache_test {
using namespace lft::train;
namespace {

using test::CountingAllocator;
using test::FaultyArena;
using test::Stage;

constexpr int64_t kNumbers = 1000;

int64_t count(const std::vector<std::string>& notes, const std::string& text) {
  return std::count_if(notes.begin(), notes.end(), [&](const std::string& note) {
    return note.find(text) != std::string::npos;
  });
}

/// A sum to which a body adds its input, and a value that it overwrites, with a graph cache over
/// a faulty arena.
class GraphCacheTest : public ::testing::Test {
 protected:
  GraphCache& cache(Stage stage, bool exact = true, int faults = 1) {
    auto arena = std::make_unique<FaultyArena>(stage, faults);
    arena_ = arena.get();
    cache_ = std::make_unique<GraphCache>(std::move(arena), exact);
    return *cache_;
  }
  /// sum += x^2 + 1, last = x, under `key`; `stray` is added in a single call of the body.
  void add(const std::string& key, const at::Tensor& sum, float x, int64_t stray_call = -1,
           double stray = 0) {
    x_.fill_(x);
    cache_->run(key, /*size=*/0, {sum, last_}, [this, sum, stray_call, stray] {
      ++calls_;
      sum.add_(x_ * x_ + 1);
      if (calls_ == stray_call) sum.add_(stray);
      last_.copy_(x_);
    });
  }
  static void expect_all(const at::Tensor& tensor, float value, const std::string& what) {
    EXPECT_EQ(tensor.min().item<float>(), value) << what;
    EXPECT_EQ(tensor.max().item<float>(), value) << what;
  }

  const CountingAllocator counting_;
  const at::Tensor x_ = at::zeros({kNumbers}), last_ = at::zeros({kNumbers});
  FaultyArena* arena_ = nullptr;
  std::unique_ptr<GraphCache> cache_;
  int64_t calls_ = 0;
};

TEST_F(GraphCacheTest, AGraphIsUsedOnceItWasProven) {
  cache(Stage::kNone);
  const at::Tensor sum = at::zeros({kNumbers});
  for (const float x : {1, 2, 3, 4}) add("adder", sum, x);
  expect_all(sum, 1 + 4 + 9 + 16 + 4, "sum");
  EXPECT_EQ(calls_, 5);  // the second time directly and as a replay
  const std::vector<std::string> notes = cache_->take_notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "CUDA graph 1 (of at most 16): adder, 1 nodes");
}

TEST_F(GraphCacheTest, MemoryThatRunsOutTakesOneGraphAndNoBit) {
  const std::vector<std::pair<Stage, std::string>> stages = {
      {Stage::kCopiesBefore, "copies before"},
      {Stage::kPass, "pass"},
      {Stage::kCopiesAfter, "copies after"},
      {Stage::kCapture, "capture"},
      {Stage::kReplay, "replay"},
      {Stage::kLaterReplay, "later replay"}};
  for (const auto& [stage, name] : stages) {
    cache(stage);
    const at::Tensor first = at::zeros({kNumbers}), second = at::zeros({kNumbers});
    float want = 0;
    for (const float x : {1, 2, 3, 4, 5}) {
      add("first", first, x);
      add("second", second, x);
      want += x * x + 1;
      expect_all(first, want, name);
      expect_all(second, want, name);
      expect_all(last_, x, name);
    }
    const std::vector<std::string> notes = cache_->take_notes();
    EXPECT_EQ(count(notes, "continuing without"), 1) << name;
    EXPECT_EQ(count(notes, "continuing without the CUDA graph of first: "), 1) << name;
    EXPECT_EQ(count(notes, "CUDA graph 1 (of at most 16): second"),
              stage == Stage::kLaterReplay ? 0 : 1)
        << name;
    EXPECT_EQ(count(notes, ": second, 1 nodes"), 1) << name;
    EXPECT_EQ(arena_->started_over, stage == Stage::kPass ? 1 : 0) << name;
  }
}

/// Sums in any order differ in their last bits, and only then is a difference measured.
TEST_F(GraphCacheTest, MemoryThatRunsOutInTheComparisonKeepsWhatThePassGave) {
  for (const Stage stage : {Stage::kNone, Stage::kComparison}) {
    cache(stage, /*exact=*/false);
    calls_ = 0;
    const at::Tensor sum = at::zeros({kNumbers});
    const float off = 0x1p-20f;
    for (const float x : {1, 2})
      add("adder", sum, x, /*stray_call=*/3, off);  // the replay of the verification
    expect_all(sum, 7 + (stage == Stage::kNone ? off : 0), "sum");
    EXPECT_EQ(count(cache_->take_notes(), "continuing without the CUDA graph of adder"),
              stage == Stage::kNone ? 0 : 1);
  }
}

TEST_F(GraphCacheTest, AProofTakesTwoCopiesAndNoMore) {
  cache(Stage::kNone, /*exact=*/false);
  const at::Tensor sum = at::zeros({1 << 20});
  const auto body = [this, &sum] { sum.add_(++calls_ == 3 ? 1 + 0x1p-20f : 1); };
  cache_->run("adder", 0, {sum}, body);
  const int64_t before = CountingAllocator::live();
  CountingAllocator::reset_peak();
  cache_->run("adder", 0, {sum}, body);
  EXPECT_EQ(calls_, 3);
  EXPECT_LE(CountingAllocator::peak() - before, 2 * static_cast<int64_t>(sum.nbytes()) + 1024);
  EXPECT_EQ(count(cache_->take_notes(), "CUDA graph 1"), 1);
}

TEST_F(GraphCacheTest, ABodyThatDoesNotFitEvenAloneGoesOn) {
  cache(Stage::kNone);
  const at::Tensor sum = at::zeros({kNumbers});
  int calls = 0;
  const auto body = [&] {
    sum.add_(1);
    if (++calls > 1) TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory");
  };
  cache_->run("large", 0, {sum}, body);
  EXPECT_THROW(cache_->run("large", 0, {sum}, body), c10::OutOfMemoryError);
  EXPECT_EQ(calls, 3);  // once more without copies
}

TEST_F(GraphCacheTest, AnErrorOfTheBodysOwnGoesOn) {
  cache(Stage::kNone);
  const at::Tensor sum = at::zeros({kNumbers});
  int calls = 0;
  const auto body = [&] {
    sum.add_(1);
    if (++calls > 1) throw std::runtime_error("its own");
  };
  cache_->run("thrower", 0, {sum}, body);
  EXPECT_THROW(cache_->run("thrower", 0, {sum}, body), std::runtime_error);
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(cache_->take_notes().empty());
}

/// An error of one graph for any other reason may affect all.
TEST_F(GraphCacheTest, AReplayThatGivesSomethingElseEndsAllGraphs) {
  cache(Stage::kNone, /*exact=*/false);
  const at::Tensor sum = at::zeros({kNumbers}), other = at::zeros({kNumbers});
  for (const float x : {1, 2}) add("moody", sum, x, /*stray_call=*/3, /*stray=*/100);
  for (const float x : {1, 2, 3}) add("other", other, x);
  expect_all(sum, 1 + 4 + 2, "sum");
  expect_all(other, 1 + 4 + 9 + 3, "other");
  const std::vector<std::string> notes = cache_->take_notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0],
            "continuing without CUDA graphs (moody): a replay does not give what the pass gave");
}

TEST_F(GraphCacheTest, OfValuesThatAreNotFiniteNothingIsProven) {
  for (const float value : {NAN, INFINITY, -INFINITY}) {
    cache(Stage::kNone);
    const at::Tensor y = at::zeros({kNumbers}), none = at::zeros({0});
    const auto go = [&](float x) {
      x_.fill_(0);
      x_[kNumbers / 2].fill_(x);
      cache_->run("copier", 0, {none, y}, [&] { y.copy_(x_); });
    };
    go(1);
    go(value);
    EXPECT_TRUE(cache_->take_notes().empty());
    go(2);
    EXPECT_EQ(count(cache_->take_notes(), "CUDA graph 1"), 1);
    EXPECT_EQ(y.sum().item<float>(), 2);
  }
}

}  // namespace
}  // namespace lft::graph_cache_test
