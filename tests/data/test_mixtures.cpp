// Several sources: how many rows of each an epoch uses and which, their order, and several data
// sets as one.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/data/dataset_joined.h"
#include "src/data/loader.h"
#include "support/expect_error.h"
#include "tests/data/fixtures.h"

namespace lft::mixtures_test {
using namespace lft::data;
using namespace lft::test;
namespace {

/// By row of the data set, how often an epoch uses it.
std::map<int64_t, int64_t> counts_of(const std::vector<SourceShare>& shares, int64_t epoch,
                                     uint64_t seed = 1) {
  const EpochItems items(shares, seed, epoch);
  std::map<int64_t, int64_t> counts;
  for (int64_t i = 0; i < items.size(); ++i) ++counts[items.row(i)];
  return counts;
}

std::vector<SourceShare> shares_of(const std::vector<std::pair<int64_t, double>>& sources) {
  std::vector<SourceShare> shares;
  int64_t begin = 0;
  for (const auto& [rows, weight] : sources) {
    shares.push_back({.begin = begin, .rows = rows, .taken = rows_taken(weight, rows)});
    begin += rows;
  }
  return shares;
}

TEST(Mixtures, AnEpochTakesWeightTimesRowsToTheNearest) {
  EXPECT_EQ(rows_taken(1, 200), 200);
  EXPECT_EQ(rows_taken(0.3, 101), 30);
  EXPECT_EQ(rows_taken(0.5, 101), 51);
  EXPECT_EQ(rows_taken(2.5, 10), 25);
  EXPECT_EQ(rows_taken(1e-9, 10), 1);
  EXPECT_EQ(rows_taken(3, 0), 0);
  EXPECT_EQ(rows_taken(1e6, int64_t{1} << 50), -1);
}

TEST(Mixtures, EachRowOfASourceComesAsOftenAsAnotherOrOnceMore) {
  const auto shares = shares_of({{10, 2.3}, {7, 1}, {40, 0.2}, {3, 4}});
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    const auto counts = counts_of(shares, epoch);
    std::vector<int64_t> taken(shares.size());
    for (const auto& [row, count] : counts) {
      size_t source = shares.size() - 1;
      while (row < shares[source].begin) --source;
      const SourceShare& share = shares[source];
      EXPECT_LT(row, share.begin + share.rows);
      EXPECT_GE(count, share.taken / share.rows);
      EXPECT_LE(count, share.taken / share.rows + 1);
      taken[source] += count;
    }
    EXPECT_EQ(taken, (std::vector<int64_t>{23, 7, 8, 12})) << epoch;
  }
}

/// 8 of 40 rows per epoch: in five epochs each once, then in another order.
TEST(Mixtures, NoRowIsChosenAgainBeforeAllOthersWere) {
  const auto shares = shares_of({{40, 0.2}});
  std::map<int64_t, int64_t> seen;
  std::vector<std::map<int64_t, int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    epochs.push_back(counts_of(shares, epoch));
    for (const auto& [row, count] : epochs.back()) seen[row] += count;
    if (epoch == 4) {
      EXPECT_EQ(seen.size(), 40u);
    }
  }
  for (const auto& [row, count] : seen) EXPECT_EQ(count, 2) << row;
  EXPECT_NE(epochs[0], epochs[5]);
  EXPECT_NE(counts_of(shares, 0, 1), counts_of(shares, 0, 2));
}

std::vector<int64_t> order_of(const LoaderOptions& options, int64_t rows, int64_t epoch,
                              int64_t most_held = kMostRowsHeld) {
  EpochOrder order(options, rows, epoch, most_held);
  std::vector<int64_t> indices(static_cast<size_t>(order.size()));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = order.at(static_cast<int64_t>(i));
  return indices;
}

TEST(Mixtures, EveryOrderHasTheSameRows) {
  const auto shares = shares_of({{3000, 0.4}, {50, 3.5}, {11, 1}});
  auto lengths = std::make_shared<std::vector<int32_t>>();
  for (int i = 0; i < 3061; ++i) lengths->push_back(1 + i * 7 % 91);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> want;
    for (const auto& [row, count] : counts_of(shares, epoch, 42))
      want.insert(want.end(), static_cast<size_t>(count), row);
    for (const bool grouped : {false, true}) {
      for (const bool blocks : {false, true}) {
        LoaderOptions options{.blocks = blocks, .sources = shares};
        if (grouped) options.lengths = lengths;
        std::vector<std::vector<int64_t>> orders = {order_of(options, 3061, epoch),
                                                    order_of(options, 3061, epoch, 10)};
        options.shuffle = false;
        orders.push_back(order_of(options, 3061, epoch));
        for (std::vector<int64_t> order : orders) {
          std::ranges::sort(order);
          EXPECT_EQ(order, want) << epoch << grouped << blocks;
        }
      }
    }
  }
}

/// Sources are mixed, not in sequence; and a position is found without computing earlier ones.
TEST(Mixtures, AnOrderMixesItsSources) {
  const LoaderOptions options{.sources = shares_of({{500, 1}, {500, 1}})};
  const std::vector<int64_t> order = order_of(options, 1000, 0);
  const auto first =
      std::count_if(order.begin(), order.begin() + 100, [](int64_t i) { return i < 500; });
  EXPECT_GT(first, 30);  // hypergeometric: mean 50, and 22 is six deviations of 4.7 lower
  EXPECT_LT(first, 70);
  EpochOrder alone(options, 1000, 0);
  EXPECT_EQ(alone.at(777), order[777]);
}

TEST(Mixtures, ASourceOfWeightOneIsTheDataSetAlone) {
  for (const int64_t held : {int64_t{4}, kMostRowsHeld}) {
    EXPECT_EQ(order_of({.sources = shares_of({{97, 1}})}, 97, 3, held), order_of({}, 97, 3, held));
    EXPECT_EQ(order_of({.sources = shares_of({{60, 1}, {37, 1}})}, 97, 3, held),
              order_of({}, 97, 3, held));
  }
}

class Joined : public ::testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::string& name, const std::string& rows,
                                const std::string& root) {
    return open_dataset(dir_.write(name, rows), dir_.file(root), tokenizer_, options_);
  }
  TempDir dir_;
  ByteTokenizer tokenizer_;
  EncodeOptions options_ = small_options();
};

TEST_F(Joined, RowsImagesAndFilesAreThoseOfTheirParts) {
  dir_.write("left/x.bmp", "left");
  dir_.write("right/x.bmp", "right!");
  const std::string one = llava_row("a", "x.bmp", "<image>Q", "A") + "\n",
                    two = llava_row("b", "", "Q", "B") + "\n" +
                          llava_row("c", "x.bmp", "<image>Q", "C") + "\n";
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(open("one.jsonl", one, "left"));
  parts.push_back(open("two.jsonl", two, "right"));
  const auto joined = join_datasets(std::move(parts), true);
  ASSERT_EQ(joined->size(), 3);
  EXPECT_EQ(joined->id(2), "c");
  EXPECT_EQ(joined->source(0), 0);
  EXPECT_EQ(joined->source(2), 1);
  EXPECT_EQ(joined->image_paths(2), std::vector<std::string>{dir_.file("right/x.bmp")});
  EXPECT_EQ(joined->image_numbers(0), std::vector<int32_t>{0});
  EXPECT_EQ(joined->image_numbers(2), std::vector<int32_t>{1});
  EXPECT_EQ(joined->image_root(1), dir_.file("right"));
  EXPECT_EQ(joined->image_files()[1].bytes, 6);
  EXPECT_EQ(joined->image_bytes(2, 0), "right!");
  EXPECT_EQ(joined->image_bytes(1, 0), "");
  EXPECT_EQ(joined->get(1).source, 1);
  EXPECT_THROW(joined->row(3), std::out_of_range);

  std::vector<std::unique_ptr<Dataset>> turned;
  turned.push_back(open("two.jsonl", two, "right"));
  turned.push_back(open("one.jsonl", one, "left"));
  EXPECT_NE(join_datasets(std::move(turned), true)->hash(), joined->hash());
}

/// A loader started in the middle of an epoch equals one that continues from its beginning.
TEST_F(Joined, ALoaderTakesExactlyTheWeightsAndSeeks) {
  std::string one, two;
  for (int i = 0; i < 20; ++i) one += llava_row("o" + std::to_string(i), "", "Q", "A") + "\n";
  for (int i = 0; i < 9; ++i) two += llava_row("t" + std::to_string(i), "", "Q", "B") + "\n";
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(open("one.jsonl", one, ""));
  parts.push_back(open("two.jsonl", two, ""));
  const auto joined = join_datasets(std::move(parts), true);
  const LoaderOptions options{
      .batch_size = 4, .workers = 2, .sources = shares_of({{20, 0.5}, {9, 3}})};
  Loader whole(*joined, options);
  ASSERT_EQ(whole.steps_per_epoch(), 10);  // 10 + 27 rows
  std::vector<std::vector<int64_t>> steps;
  for (int epoch = 0; epoch < 2; ++epoch) {
    int64_t of_one = 0, of_two = 0;
    for (int step = 0; step < 10; ++step) {
      const StepSamples samples = whole.next();
      steps.push_back(samples.indices.at(0));
      for (const Sample& sample : samples.micro.at(0)) ++(sample.source == 0 ? of_one : of_two);
    }
    EXPECT_EQ(of_one, 10);
    EXPECT_EQ(of_two, 27);
  }
  for (const int64_t first : {0, 3, 10, 17}) {
    Loader late(*joined, options, first);
    EXPECT_EQ(late.next().indices.at(0), steps[static_cast<size_t>(first)]);
  }
}

}  // namespace
}  // namespace lft::mixtures_test
