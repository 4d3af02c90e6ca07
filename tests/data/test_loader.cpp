#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>

#include "src/data/loader.h"
#include "support/expect_error.h"

namespace lft::loader_test {
using namespace lft::data;
namespace {

/// Samples that are their index. Some take longer, some throw.
class CountingDataset : public Dataset {
 public:
  explicit CountingDataset(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Sample get(int64_t index) const override {
    ++gets;
    if (index % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    const auto bad = errors.find(index);
    if (bad != errors.end())
      throw Error(bad->second, {.what = "bad " + std::to_string(index),
                                .where = "here",
                                .found = "noise",
                                .expected = {},
                                .next = {}});
    return {.id = id(index), .input_ids = {index}, .labels = {-100}, .images = {}};
  }
  std::string id(int64_t index) const override { return "s" + std::to_string(index); }
  std::vector<std::string> image_paths(int64_t) const override { return {}; }
  Row row(int64_t) const override { return {}; }
  std::string hash() const override { return ""; }

  std::map<int64_t, ErrorKind> errors;
  mutable std::atomic<int64_t> gets = 0;

 private:
  int64_t size_;
};

LoaderOptions options_of(int64_t batch, int64_t accum, int64_t workers, bool shuffle = true) {
  return {.batch_size = batch,
          .grad_accum = accum,
          .workers = workers,
          .seed = 42,
          .shuffle = shuffle,
          .skip_bad = false};
}

/// Every step as "epoch|a,b|c": the samples of each micro-batch.
std::vector<std::string> stream(const Dataset& data, LoaderOptions options, int64_t first_step,
                                int64_t steps) {
  Loader loader(data, options, first_step);
  std::vector<std::string> lines;
  for (int64_t i = 0; i < steps; ++i) {
    const StepSamples step = loader.next();
    std::string line = std::to_string(step.epoch);
    for (size_t m = 0; m < step.micro.size(); ++m) {
      line += "|";
      for (size_t b = 0; b < step.micro[m].size(); ++b) {
        line += (b ? "," : "") + step.micro[m][b].id;
        EXPECT_EQ(step.micro[m][b].input_ids[0], step.indices[m][b]);
      }
    }
    for (const std::string& skipped : step.skipped) line += " -" + skipped;
    lines.push_back(line);
  }
  return lines;
}

TEST(EpochOrder, IsFixedForEver) {
  // From a second implementation, in Python: splitmix64, Fisher-Yates from the end, index = high 64
  // bits of random * i.
  EXPECT_EQ(epoch_order(10, 42, 0, true), (std::vector<int64_t>{1, 7, 2, 5, 6, 4, 0, 9, 8, 3}));
  EXPECT_EQ(epoch_order(10, 42, 1, true), (std::vector<int64_t>{3, 0, 1, 7, 4, 5, 2, 8, 6, 9}));
  EXPECT_EQ(epoch_order(10, 7, 0, true), (std::vector<int64_t>{6, 1, 8, 3, 0, 2, 9, 4, 5, 7}));
  EXPECT_EQ(epoch_order(4, 7, 3, false), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(epoch_order(0, 7, 3, true).empty());
}

TEST(EpochOrder, IsAPermutationThatEpochAndSeedChange) {
  for (const int64_t size : {1, 2, 1000}) {
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const std::vector<int64_t> order = epoch_order(size, 5, epoch, true);
      EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), static_cast<size_t>(size));
    }
  }
  EXPECT_NE(epoch_order(1000, 5, 0, true), epoch_order(1000, 5, 1, true));
  EXPECT_NE(epoch_order(1000, 5, 0, true), epoch_order(1000, 6, 0, true));
}

TEST(EpochOrder, IsUniform) {
  // 6000 epochs of 3: each of the 6 orders is expected 1000 times, standard deviation 28.9; 5 of
  // them is 144.
  std::map<std::vector<int64_t>, int> counts;
  for (int64_t epoch = 0; epoch < 6000; ++epoch) ++counts[epoch_order(3, 42, epoch, true)];
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 144);
}

std::vector<int64_t> places(const LoaderOptions& options, int64_t size, int64_t most_held) {
  EpochOrder order(options, size, /*epoch=*/3, most_held);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < size; ++i) all.push_back(order.at(i));
  return all;
}

bool is_permutation_of_all(std::vector<int64_t> order) {
  std::ranges::sort(order);
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

TEST(EpochOrder, OfManyRowsIsComputedAndAPermutationAllTheSame) {
  for (const int64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 1023, 1025, 4097}) {
    for (const uint64_t seed : {0, 1, 42}) {
      const std::vector<int64_t> order = places({.seed = seed}, size, /*most_held=*/0);
      EXPECT_TRUE(is_permutation_of_all(order)) << size;
      if (size > 60) {
        EXPECT_NE(order, places({.seed = seed + 7}, size, 0)) << size;
      }
    }
  }
  EXPECT_EQ(places({.seed = 5}, 1000, kMostRowsHeld), epoch_order(1000, 5, 3, true));
}

/// Neighbours of a random order of n have a mean distance of n / 3 and a standard deviation of
/// n / sqrt(18); that of the mean of 10^5 is 0.0008 n, since each shares a position with the next,
/// and 5 of them are 0.004 n.
TEST(EpochOrder, ComputedItScattersNeighbours) {
  constexpr int64_t kSize = int64_t{3} << 40;
  EpochOrder order({.seed = 9}, kSize, 0);
  double sum = 0;
  for (int64_t i = 0; i < 100000; ++i)
    sum += std::abs(static_cast<double>(order.at(i + 1) - order.at(i)));
  EXPECT_NEAR(sum / 100000 / static_cast<double>(kSize), 1.0 / 3, 0.004);
}

TEST(EpochOrder, BlocksAreShuffledAndReadFromTheirFirstRowToTheirLast) {
  LoaderOptions options;
  options.blocks = true;
  for (const int64_t size : {int64_t{100}, kRowsOfABlock, 5 * kRowsOfABlock + 17}) {
    const std::vector<int64_t> order = places(options, size, kMostRowsHeld);
    EXPECT_TRUE(is_permutation_of_all(order));
    for (int64_t i = 0; i + 1 < size; ++i) {
      if ((i + 1) % kRowsOfABlock != 0) {
        EXPECT_EQ(order[static_cast<size_t>(i + 1)], order[static_cast<size_t>(i)] + 1) << i;
      }
    }
  }
  options.seed = 1;
  const int64_t size = 64 * kRowsOfABlock;
  const std::vector<int64_t> one = places(options, size, kMostRowsHeld);
  EXPECT_NE(one, epoch_order(size, 0, 0, false));
  options.seed = 2;
  EXPECT_NE(one, places(options, size, kMostRowsHeld));
}

TEST(EpochOrder, GroupsByLengthWithoutHoldingAnOrder) {
  LoaderOptions options;
  options.batch_size = 4;
  auto lengths = std::make_shared<std::vector<int32_t>>();
  for (int i = 0; i < 4001; ++i) lengths->push_back(10 + (i * 7919) % 500);
  options.lengths = lengths;
  for (const bool blocks : {false, true}) {
    options.blocks = blocks;
    const std::vector<int64_t> order = places(options, 4001, /*most_held=*/0);
    EXPECT_TRUE(is_permutation_of_all(order));
    int64_t spread = 0;  // lengths within a batch; for random ones the mean is 300
    for (size_t i = 0; i + 4 <= order.size(); i += 4) {
      const auto at = [&](size_t k) { return (*lengths)[static_cast<size_t>(order[i + k])]; };
      spread += std::max({at(0), at(1), at(2), at(3)}) - std::min({at(0), at(1), at(2), at(3)});
    }
    EXPECT_LT(spread / 1000, 30);
  }
}

TEST(Loader, GoesOverMoreRowsThanAnyMemoryHoldsAnOrderOf) {
  const CountingDataset data(int64_t{1} << 62);
  Loader loader(data, options_of(2, 1, 3));
  const StepSamples first = loader.next();
  EXPECT_EQ(first.indices, Loader(data, options_of(2, 1, 0)).next().indices);
  EXPECT_EQ(loader.steps_per_epoch(), int64_t{1} << 61);
}

TEST(Loader, BatchesAndGroupsStayInTheirEpoch) {
  const CountingDataset data(7);
  const std::vector<std::string> lines = stream(data, options_of(2, 2, 0, false), 0, 4);
  EXPECT_EQ(lines, (std::vector<std::string>{"0|s0,s1|s2,s3", "0|s4,s5|s6", "1|s0,s1|s2,s3",
                                             "1|s4,s5|s6"}));
  EXPECT_EQ(Loader(data, options_of(2, 2, 0)).steps_per_epoch(), 2);
  EXPECT_EQ(stream(data, options_of(16, 1, 0, false), 0, 2)[1], "1|s0,s1,s2,s3,s4,s5,s6");
}

TEST(Loader, WorkersDoNotChangeTheStream) {
  const CountingDataset data(53);
  const std::vector<std::string> expected = stream(data, options_of(4, 3, 0), 0, 12);
  EXPECT_EQ(stream(data, options_of(4, 3, 1), 0, 12), expected);
  EXPECT_EQ(stream(data, options_of(4, 3, 8), 0, 12), expected);
}

TEST(Loader, SeeksWithoutReadingWhatItSkips) {
  const CountingDataset data(53);
  const std::vector<std::string> all = stream(data, options_of(4, 3, 0), 0, 12);
  data.gets = 0;
  for (const int64_t first : {0, 3, 5, 11}) {
    EXPECT_EQ(stream(data, options_of(4, 3, 0), first, 1),
              (std::vector<std::string>{all[static_cast<size_t>(first)]}));
  }
  EXPECT_LE(data.gets, 4 * 12);
}

TEST(Loader, ErrorsComeAtTheStepThatNeedsTheSample) {
  CountingDataset data(20);
  data.errors = {{9, ErrorKind::kInput}, {5, ErrorKind::kInput}};
  for (const int64_t workers : {0, 1, 8}) {
    Loader loader(data, options_of(2, 1, workers, false));
    EXPECT_EQ(loader.next().indices[0][0], 0);
    EXPECT_EQ(loader.next().indices[0][0], 2);
    EXPECT_LFT_ERROR(ErrorKind::kInput, "bad 5", loader.next());
    EXPECT_LFT_ERROR(ErrorKind::kInput, "bad 5", loader.next());
  }
}

TEST(Loader, BadSamplesAreLeftOutAndNamed) {
  CountingDataset data(8);
  data.errors = {{1, ErrorKind::kInput},
                 {2, ErrorKind::kInput},
                 {3, ErrorKind::kInput},
                 {6, ErrorKind::kInput},
                 {7, ErrorKind::kInput}};
  for (const int64_t workers : {0, 4}) {
    LoaderOptions options = options_of(2, 2, workers, false);
    options.skip_bad = true;
    EXPECT_EQ(
        stream(data, options, 0, 2),
        (std::vector<std::string>{"0|s0 -s1: bad 1 (noise) -s2: bad 2 (noise) -s3: bad 3 (noise)",
                                  "0|s4,s5 -s6: bad 6 (noise) -s7: bad 7 (noise)"}));
  }
  data.errors = {{0, ErrorKind::kInput}, {1, ErrorKind::kInput}};
  LoaderOptions options = options_of(2, 1, 2, false);
  options.skip_bad = true;
  Loader loader(data, options);
  const StepSamples empty = loader.next();
  EXPECT_TRUE(empty.micro.empty());
  EXPECT_EQ(empty.skipped_indices, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(loader.next().indices[0][0], 2);
}

/// For every split, with samples left out, the ranks' micro-batches in order are
/// those of a single loader.
TEST(Loader, SharesOfRanksAreTheStep) {
  CountingDataset data(23);
  data.errors = {{4, ErrorKind::kInput}, {5, ErrorKind::kInput}, {17, ErrorKind::kInput}};
  auto tokens = std::make_shared<std::vector<int32_t>>();
  for (int32_t i = 0; i < 23; ++i) tokens->push_back(1 + i % 3);
  for (const int64_t max_tokens : {0, 4}) {
    LoaderOptions options = options_of(2, 4, 2, /*shuffle=*/true);
    options.skip_bad = true;
    options.max_tokens = max_tokens;
    options.tokens = tokens;
    for (const int64_t ranks : {1, 2, 3, 4, 7}) {
      Loader whole(data, options);
      std::vector<std::unique_ptr<Loader>> loaders;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        LoaderOptions own = options;
        own.rank = rank;
        own.ranks = ranks;
        own.workers = rank % 3;
        loaders.push_back(std::make_unique<Loader>(data, own));
      }
      for (int step = 0; step < 7; ++step) {
        const StepSamples expected = whole.next();
        StepSamples all;
        for (const auto& loader : loaders) {
          const StepSamples part = loader->next();
          all.indices.insert(all.indices.end(), part.indices.begin(), part.indices.end());
          all.numbers.insert(all.numbers.end(), part.numbers.begin(), part.numbers.end());
          all.skipped.insert(all.skipped.end(), part.skipped.begin(), part.skipped.end());
          EXPECT_EQ(part.cut, expected.cut);
          EXPECT_EQ(part.epoch, expected.epoch);
        }
        EXPECT_EQ(all.indices, expected.indices) << ranks << " " << step;
        EXPECT_EQ(all.numbers, expected.numbers);
        EXPECT_EQ(all.skipped, expected.skipped);
      }
    }
  }
}

TEST(Loader, OnlyBadSamplesAreSkipped) {
  CountingDataset data(4);
  data.errors = {{1, ErrorKind::kResource}};
  LoaderOptions options = options_of(2, 1, 2, false);
  options.skip_bad = true;
  Loader loader(data, options);
  EXPECT_LFT_ERROR(ErrorKind::kResource, "bad 1", loader.next());
}

TEST(Loader, ReadsAheadWithinBoundsAndStopsAtOnce) {
  const CountingDataset data(100000);
  const auto start = std::chrono::steady_clock::now();
  {
    Loader loader(data, options_of(2, 1, 4));
    loader.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_LE(data.gets,
              2 + 2 + 8 + 4);  // taken, a step ahead, two per worker, one in each worker
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no sample", Loader(CountingDataset(0), options_of(2, 1, 0)));
}

}  // namespace
}  // namespace lft::loader_test
