// data.group_by_length: batches of samples of similar length, in an order that depends only
// on the options, the epoch and the lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "src/data/loader.h"
#include "support/expect_error.h"

namespace lft::length_groups_test {
using namespace lft::data;
namespace {

std::vector<int64_t> epoch_order(const LoaderOptions& options, int64_t size, int64_t epoch) {
  EpochOrder order(options, size, epoch);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < size; ++i) all.push_back(order.at(i));
  return all;
}
using lft::data::epoch_order;

std::shared_ptr<const std::vector<int32_t>> lengths_of(int64_t size, int32_t (*length)(int64_t)) {
  auto lengths = std::make_shared<std::vector<int32_t>>();
  for (int64_t i = 0; i < size; ++i) lengths->push_back(length(i));
  return lengths;
}

LoaderOptions grouped(std::shared_ptr<const std::vector<int32_t>> lengths, int64_t batch,
                      int64_t accum = 1, bool shuffle = true) {
  return {.batch_size = batch,
          .grad_accum = accum,
          .workers = 0,
          .seed = 42,
          .shuffle = shuffle,
          .skip_bad = false,
          .lengths = std::move(lengths)};
}

/// Positions with padding divided by positions without.
double padded_share(const std::vector<int64_t>& order, const std::vector<int32_t>& lengths,
                    int64_t batch) {
  int64_t padded = 0;
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(batch)) {
    const size_t end = std::min(order.size(), begin + static_cast<size_t>(batch));
    int32_t longest = 0;
    for (size_t i = begin; i < end; ++i)
      longest = std::max(longest, lengths[static_cast<size_t>(order[i])]);
    padded += longest * static_cast<int64_t>(end - begin);
  }
  return static_cast<double>(padded) /
         static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
}

int32_t spread(int64_t i) { return static_cast<int32_t>(i * 37 % 101); }
int32_t wide(int64_t i) { return static_cast<int32_t>(20 + i * i * 31 % 1009); }

/// Samples with the lengths in the list.
class SizedDataset : public Dataset {
 public:
  explicit SizedDataset(std::vector<int32_t> lengths) : lengths_(std::move(lengths)) {}
  int64_t size() const override { return static_cast<int64_t>(lengths_.size()); }
  Sample get(int64_t index) const override {
    ++gets;
    const auto tokens = static_cast<size_t>(lengths_[static_cast<size_t>(index)]);
    return {.id = id(index),
            .input_ids = std::vector<int64_t>(tokens, index),
            .labels = std::vector<int64_t>(tokens, -100),
            .images = {}};
  }
  std::string id(int64_t index) const override { return std::to_string(index); }
  std::vector<std::string> image_paths(int64_t) const override { return {}; }
  Row row(int64_t) const override { return {}; }
  std::string hash() const override { return ""; }
  mutable int64_t gets = 0;

 private:
  std::vector<int32_t> lengths_;
};

std::vector<std::vector<int64_t>> batches(Loader& loader, int64_t steps) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t i = 0; i < steps; ++i) {
    for (const std::vector<int64_t>& micro : loader.next().indices) all.push_back(micro);
  }
  return all;
}

TEST(LengthGroups, OrderIsFixedForEver) {
  // From a second implementation, in Python: windows of clamp(11 / 8, 1, 50) batches of 2, sorted
  // from long to short, batches shuffled.
  const auto lengths = lengths_of(11, spread);
  EXPECT_EQ(epoch_order(grouped(lengths, 2), 11, 0),
            (std::vector<int64_t>{5, 7, 10, 1, 8, 0, 2, 6, 4, 9, 3}));
  EXPECT_EQ(epoch_order(grouped(lengths, 2), 11, 1),
            (std::vector<int64_t>{8, 0, 4, 1, 7, 9, 5, 3, 2, 6, 10}));
  EXPECT_EQ(epoch_order(grouped(lengths, 2, 1, /*shuffle=*/false), 11, 0),
            (std::vector<int64_t>{1, 0, 2, 3, 5, 4, 7, 6, 8, 9, 10}));
  EXPECT_EQ(epoch_order(grouped(nullptr, 2), 11, 0), epoch_order(11, 42, 0, true));
}

TEST(LengthGroups, EverySampleOnceAnEpoch) {
  for (const int64_t size : {1, 2, 7, 64, 1001}) {
    for (const int64_t batch : {1, 3, 16}) {
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        const std::vector<int64_t> order =
            epoch_order(grouped(lengths_of(size, wide), batch), size, epoch);
        const std::set<int64_t> distinct(order.begin(), order.end());
        EXPECT_EQ(order.size(), static_cast<size_t>(size));
        EXPECT_EQ(distinct.size(), static_cast<size_t>(size));
        EXPECT_EQ(*distinct.rbegin(), size - 1);
      }
    }
  }
}

TEST(LengthGroups, PadsAsLittleAsTransformersDoes) {
  // transformers.trainer_pt_utils.get_length_grouped_indices on the same lengths, generator seeded
  // with 0: 1.0162; the plain order: 1.7248.
  const auto lengths = lengths_of(4000, wide);
  EXPECT_NEAR(padded_share(epoch_order(4000, 42, 0, true), *lengths, 8), 1.7248, 5e-5);
  EXPECT_LE(padded_share(epoch_order(grouped(lengths, 8), 4000, 0), *lengths, 8), 1.02);
}

TEST(LengthGroups, BatchesComeInNoOrderOfLengthAndMeetOthersEveryEpoch) {
  const auto lengths = lengths_of(4000, wide);
  const std::vector<int64_t> first = epoch_order(grouped(lengths, 8), 4000, 0),
                             second = epoch_order(grouped(lengths, 8), 4000, 1);
  std::set<std::set<int64_t>> met;
  int64_t rising = 0, same = 0;
  for (size_t at = 0; at < 4000; at += 8) {
    met.insert(std::set<int64_t>(first.begin() + static_cast<int64_t>(at),
                                 first.begin() + static_cast<int64_t>(at) + 8));
    if (at > 0)
      rising += (*lengths)[static_cast<size_t>(first[at])] >
                        (*lengths)[static_cast<size_t>(first[at - 8])]
                    ? 1
                    : 0;
  }
  for (size_t at = 0; at < 4000; at += 8) {
    same += met.contains(std::set<int64_t>(second.begin() + static_cast<int64_t>(at),
                                           second.begin() + static_cast<int64_t>(at) + 8));
  }
  EXPECT_NEAR(
      static_cast<double>(rising), 249.5,
      5 * 6.5);  // 499 neighbours of a random order: mean half, standard deviation sqrt(500 / 12)
  EXPECT_LT(same, 10);
}

TEST(LengthGroups, LoaderSeeksAndKeepsBatchesWithinTheirEpoch) {
  const std::vector<int32_t> sizes = *lengths_of(53, spread);
  const SizedDataset data(sizes);
  const auto lengths = std::make_shared<const std::vector<int32_t>>(sizes);
  Loader whole(data, grouped(lengths, 4, 3));
  const int64_t steps = whole.steps_per_epoch();
  const std::vector<std::vector<int64_t>> all = batches(whole, 3 * steps);
  std::multiset<int64_t> epoch;
  for (size_t i = 0; i < all.size() / 3; ++i) epoch.insert(all[i].begin(), all[i].end());
  EXPECT_EQ(epoch.size(), 53u);
  EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 53u);
  data.gets = 0;
  for (const int64_t first : {int64_t{1}, steps - 1, steps + 2}) {
    Loader seeking(data, grouped(lengths, 4, 3), first);
    const std::vector<std::vector<int64_t>> rest = batches(seeking, 3 * steps - first);
    EXPECT_TRUE(std::equal(rest.rbegin(), rest.rend(), all.rbegin())) << first;
  }
  Loader last(data, grouped(lengths, 4, 3), steps + 2);
  data.gets = 0;
  last.next();
  EXPECT_LE(data.gets, 12);
}

TEST(LengthGroups, WantsALengthForEverySample) {
  const SizedDataset data(*lengths_of(5, wide));
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "one length for each",
                   Loader(data, grouped(lengths_of(4, wide), 2)));
}

}  // namespace
}  // namespace lft::length_groups_test
