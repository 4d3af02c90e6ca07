// The order in which the samples of an epoch are read: a function of the seed, the epoch and the
// index, independent of the number of workers.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "src/data/batch.h"
#include "src/data/sources/epoch_sources.h"

namespace lft::data {

/// The permutation of [0, size) for an epoch; identity without shuffle.
std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle);

/// Up to this many rows a shuffled order is kept in memory; above it, each position is computed.
constexpr int64_t kMostRowsHeld = 1 << 24;
constexpr int64_t kRowsOfABlock = 1024;  // data.shuffle: blocks

struct LoaderOptions {
  int64_t batch_size = 16, grad_accum = 1, workers = 4;
  uint64_t seed = 42;
  bool shuffle = true;
  bool blocks = false;    // with shuffle: whole blocks are shuffled, the short last one stays last
  bool skip_bad = false;  // on_bad_sample: skip (counted, listed by id)
  int64_t max_tokens =
      0;  // above 0: micro-batches are cut by tokens, in order, instead of batch_size
  /// Tokens by dataset index, by which batches of similar length are made (data.group_by_length).
  /// Null: lengths are ignored.
  std::shared_ptr<const std::vector<int32_t>> lengths = {};
  /// Tokens by dataset index, by which micro-batches are cut under max_tokens, equally on all
  /// ranks. Null: the tokens of the samples that are read; for one rank only.
  std::shared_ptr<const std::vector<int32_t>> tokens = {};
  int64_t rank = 0, ranks = 1;  // the loader returns this rank's micro-batches of a step
  /// The number of rows of each part of the data set in an epoch; empty: all rows once. The parts
  /// are in order and without gaps.
  std::vector<SourceShare> sources = {};
  /// The layout of batches; null: the loader returns samples only.
  std::shared_ptr<const BatchLayout> layout = {};
};

/// The number of samples in an epoch of a data set of `rows`.
int64_t epoch_size(const LoaderOptions& options, int64_t rows);

/// The order in which a loader with these options reads the samples of an epoch, as indices of a
/// data set of `rows`: a permutation of them, or of the rows of the sources. It is a function of
/// options, epoch and lengths. Each batch_size consecutive samples are a micro-batch. Memory does
/// not grow beyond kMostRowsHeld rows. Not thread-safe.
class EpochOrder {
 public:
  /// `most_held` is kMostRowsHeld except in tests.
  EpochOrder(const LoaderOptions& options, int64_t rows, int64_t epoch,
             int64_t most_held = kMostRowsHeld);
  int64_t size() const { return size_; }
  int64_t at(int64_t place);

 private:
  int64_t base(int64_t place) const;
  int64_t item(int64_t place) const;
  int64_t grouped(int64_t place);

  const LoaderOptions options_;
  EpochItems items_;
  int64_t size_, window_ = 0;  // window_: number of positions sorted by length together
  uint64_t stream_;
  std::vector<uint32_t> held_, batches_;  // empty: computed
  std::vector<int64_t> sorted_;           // the window used by the last call
  int64_t sorted_begin_ = -1;
};

}  // namespace lft::data
