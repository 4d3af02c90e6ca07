#include "src/data/loader_order.h"

#include <algorithm>
#include <numeric>

#include "src/base/hash.h"

namespace lft::data {
namespace {

constexpr uint64_t kBatchStream =
    0x6c656e6774687321ull;  // separates the shuffle of batches from that of samples
constexpr int64_t kMostBatches = 50,
                  kFewestWindows = 4;  // as in Hugging Face's LengthGroupedSampler

/// splitmix64 (Steele, Lea, Flood 2014), since std::shuffle differs between libraries.
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

/// Fisher-Yates shuffle from the end.
template <class Item>
void shuffle_with(std::vector<Item>& items, uint64_t state) {
  for (size_t i = items.size(); i > 1; --i) {
    const auto j = static_cast<size_t>((static_cast<unsigned __int128>(splitmix64(state)) * i) >>
                                       64);  // in [0, i)
    std::swap(items[i - 1], items[j]);
  }
}

/// Shuffles a few items: those of the batches when batches are shuffled.
template <class Item>
std::vector<Item> shuffled(int64_t size, uint64_t stream) {
  std::vector<Item> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), Item{0});
  shuffle_with(order, stream);
  return order;
}

}  // namespace

std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle) {
  if (shuffle) return shuffled<int64_t>(size, stream_of(seed, epoch));
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

int64_t epoch_size(const LoaderOptions& options, int64_t rows) {
  return options.sources.empty() ? rows : EpochItems(options.sources, options.seed, 0).size();
}

/// Without lengths, `held_` is the order of the rows. With lengths, windows of many batches are
/// sorted, so that a batch contains samples of similar length, and whole batches are shuffled into
/// `held_`; the short last batch stays last. The samples of a batch still vary by epoch, since the
/// windows are cut from its order.
EpochOrder::EpochOrder(const LoaderOptions& options, int64_t rows, int64_t epoch, int64_t most_held)
    : options_(options),
      items_(options.sources, options.seed, epoch),
      size_(epoch_size(options, rows)),
      stream_(stream_of(options.seed, epoch)) {
  const int64_t batch = options.batch_size, size = size_;
  if (options.shuffle && !options.blocks && size <= most_held)
    held_ = shuffled<uint32_t>(size, stream_);
  if (!options.lengths) return;
  window_ = batch * std::clamp<int64_t>(size / (batch * kFewestWindows), 1, kMostBatches);
  if (options.shuffle && size <= most_held)
    batches_ = shuffled<uint32_t>(size / batch, stream_ ^ kBatchStream);
}

int64_t EpochOrder::at(int64_t place) { return options_.lengths ? grouped(place) : base(place); }

/// The row at a position of the order that ignores lengths.
int64_t EpochOrder::base(int64_t place) const {
  return options_.sources.empty() ? item(place) : items_.row(item(place));
}

int64_t EpochOrder::item(int64_t place) const {
  if (!options_.shuffle) return place;
  if (!held_.empty()) return held_[static_cast<size_t>(place)];
  const auto size = static_cast<uint64_t>(size_), at = static_cast<uint64_t>(place);
  if (!options_.blocks) return static_cast<int64_t>(permuted(at, size, stream_));
  constexpr auto kBlock = static_cast<uint64_t>(kRowsOfABlock);
  const uint64_t blocks = size / kBlock;
  if (at >= blocks * kBlock) return place;
  return static_cast<int64_t>(permuted(at / kBlock, blocks, stream_) * kBlock + at % kBlock);
}

int64_t EpochOrder::grouped(int64_t place) {
  const int64_t batch = options_.batch_size, batches = size_ / batch;
  int64_t from = place;
  if (options_.shuffle && place < batches * batch) {
    const int64_t number = place / batch;
    const int64_t source =
        batches_.empty()
            ? static_cast<int64_t>(permuted(static_cast<uint64_t>(number),
                                            static_cast<uint64_t>(batches), stream_ ^ kBatchStream))
            : batches_[static_cast<size_t>(number)];
    from = source * batch + place % batch;
  }
  const int64_t begin = from / window_ * window_;
  if (begin != sorted_begin_) {
    sorted_.clear();
    for (int64_t i = begin; i < std::min(begin + window_, size_); ++i) sorted_.push_back(base(i));
    const std::vector<int32_t>& lengths = *options_.lengths;
    std::stable_sort(sorted_.begin(), sorted_.end(), [&](int64_t a, int64_t b) {
      return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
    });
    sorted_begin_ = begin;
  }
  return sorted_[static_cast<size_t>(from - begin)];
}

}  // namespace lft::data
