#include <algorithm>
#include <numeric>

#include "src/data/loader.h"

namespace lft::data {
namespace {

constexpr uint64_t kBatchStream =
    0x6c656e6774687321ull;  // sets the shuffle of batches apart from that of samples
constexpr int64_t kMostBatches = 50,
                  kFewestWindows = 4;  // as Hugging Face's LengthGroupedSampler has them

/// splitmix64 (Steele, Lea, Flood 2014). Ours and fixed: std::shuffle differs between libraries.
uint64_t splitmix64(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t stream_of(uint64_t seed, int64_t epoch) {
  uint64_t key = seed;
  return static_cast<uint64_t>(epoch) ^ splitmix64(key);
}

/// Fisher-Yates from the end.
void shuffle_with(std::vector<int64_t>& items, uint64_t state) {
  for (size_t i = items.size(); i > 1; --i) {
    const auto j = static_cast<size_t>((static_cast<unsigned __int128>(splitmix64(state)) * i) >>
                                       64);  // in [0, i)
    std::swap(items[i - 1], items[j]);
  }
}

/// Sorts windows of many batches by length, so that a batch holds neighbours, then puts the whole
/// batches in a random order; the short last one stays last. Which samples meet still depends on
/// the epoch, since the windows are cut from its order.
std::vector<int64_t> group_by_length(std::vector<int64_t> order, const LoaderOptions& options,
                                     int64_t epoch) {
  const std::vector<int32_t>& lengths = *options.lengths;
  const auto size = static_cast<int64_t>(order.size()), batch = options.batch_size;
  const int64_t window =
      batch * std::clamp<int64_t>(size / (batch * kFewestWindows), 1, kMostBatches);
  for (int64_t begin = 0; begin < size; begin += window) {
    std::stable_sort(order.begin() + begin, order.begin() + std::min(begin + window, size),
                     [&](int64_t a, int64_t b) {
                       return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
                     });
  }
  if (!options.shuffle) return order;
  std::vector<int64_t> batches(static_cast<size_t>(size / batch));
  std::iota(batches.begin(), batches.end(), int64_t{0});
  shuffle_with(batches, stream_of(options.seed, epoch) ^ kBatchStream);
  std::vector<int64_t> result;
  result.reserve(order.size());
  for (const int64_t number : batches) {
    result.insert(result.end(), order.begin() + number * batch,
                  order.begin() + (number + 1) * batch);
  }
  result.insert(result.end(), order.begin() + static_cast<int64_t>(result.size()), order.end());
  return result;
}

}  // namespace

std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (shuffle) shuffle_with(order, stream_of(seed, epoch));
  return order;
}

std::vector<int64_t> epoch_order(const LoaderOptions& options, int64_t size, int64_t epoch) {
  std::vector<int64_t> order = epoch_order(size, options.seed, epoch, options.shuffle);
  return options.lengths ? group_by_length(std::move(order), options, epoch) : order;
}

}  // namespace lft::data
