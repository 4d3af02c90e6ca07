// Which samples make which batch, and having them ready before the step asks. Order is f(seed,
// epoch, index), whatever the worker count.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/family/batch.h"
#include "models/family/family.h"
#include "src/data/batch.h"
#include "src/data/dataset.h"
#include "src/data/sources/epoch_sources.h"

namespace lft::data {

/// The permutation of [0, size) for an epoch; identity without shuffle.
std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle);

/// Rows up to which a shuffled order is held; of more, each place is computed (permuted()).
constexpr int64_t kMostRowsHeld = 1 << 24;
constexpr int64_t kRowsOfABlock = 1024;  // of data.shuffle: blocks

struct LoaderOptions {
  int64_t batch_size = 16, grad_accum = 1, workers = 4;
  uint64_t seed = 42;
  bool shuffle = true;
  bool blocks = false;    // with shuffle: whole blocks of rows are, and the short last one is last
  bool skip_bad = false;  // on_bad_sample: skip (counted, named)
  int64_t max_tokens =
      0;  // above 0: micro-batches are cut by tokens, in order, instead of by batch_size
  /// Tokens by dataset index: batches of samples of like length (data.group_by_length). Null:
  /// without regard to length.
  std::shared_ptr<const std::vector<int32_t>> lengths = {};
  /// Tokens by dataset index, by which micro-batches are cut under max_tokens: the same cut for
  /// whoever reads which samples. Null: by the samples that are read, by one rank alone.
  std::shared_ptr<const std::vector<int32_t>> tokens = {};
  int64_t rank = 0, ranks = 1;  // of a step's micro-batches the loader gives this rank's share
  /// How many rows of each part of the data set an epoch takes; empty: all rows once. All parts in
  /// order, without a gap.
  std::vector<SourceShare> sources = {};
  /// How the batches are made of the samples; null: the loader gives samples alone.
  std::shared_ptr<const BatchLayout> layout = {};
};

/// How many samples an epoch of a data set of `rows` has.
int64_t epoch_size(const LoaderOptions& options, int64_t rows);

/// The order in which a loader of these options gives an epoch's samples, as indices of a data set
/// of `rows`: a permutation of them, or of what the sources give; a function of options, epoch and
/// the lengths alone. Every batch_size of them are a micro-batch. Memory does not grow beyond
/// kMostRowsHeld rows. Not for two threads at once.
class EpochOrder {
 public:
  /// `most_held`: kMostRowsHeld, less in tests.
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
  int64_t size_, window_ = 0;  // window_: places that are sorted by length together
  uint64_t stream_;
  std::vector<uint32_t> held_, batches_;  // empty: computed
  std::vector<int64_t> sorted_;           // the window that was last asked for
  int64_t sorted_begin_ = -1;
};

/// The micro-batches of one optimizer step, or a rank's share of them. The short last group of an
/// epoch may have fewer micro-batches, its last one fewer rows.
struct StepSamples {
  int64_t epoch = 0;                       // from 0
  std::vector<std::vector<Sample>> micro;  // [grad_accum][batch_size], or cut by tokens; a
                                           // micro-batch with every sample left out is left out too
  std::vector<std::vector<int64_t>> indices;  // dataset indices of the same
  /// Numbers of the same among all `cut` micro-batches of the step, those that are left out
  /// counted: the order in which their gradients are added (src/base/sum_tree.h).
  std::vector<int64_t> numbers = {};
  int64_t cut = 0;
  std::vector<std::string> skipped;                // ids of bad samples left out, with the reason
  std::vector<int64_t> skipped_indices;            // dataset indices of the same
  std::shared_ptr<const BatchLayout> layout = {};  // of the loader; how micro-batches are made
  /// Of the first micro-batch, where it was made ahead of its step, on its way to the device; null:
  /// it was not. Who runs it takes it and leaves an empty one.
  std::shared_ptr<family::Batch> made = {};

  /// The batch of micro-batch `micro`: the one made ahead where that is it.
  family::Batch take(size_t micro) const;
  family::Batch make(const std::vector<Sample>& samples) const {
    return make_batch(*layout, samples);
  }
};

/// Where micro-batches begin within a global batch.
class MicroBatchCutter {
 public:
  explicit MicroBatchCutter(const LoaderOptions& options)
      : batch_size_(options.batch_size), max_tokens_(options.max_tokens) {}
  /// Asked for every place from 0 on. tokens: of its sample, 0 where that is left out.
  bool starts_micro_batch(int64_t place, int64_t tokens);

 private:
  int64_t batch_size_, max_tokens_, held_ = 0;
};

class Loader {
 public:
  Loader(const Dataset& dataset, LoaderOptions options,
         int64_t first_step = 0);  // O(1) seek: first_step counts optimizer steps from 0
  ~Loader();
  int64_t steps_per_epoch() const;
  /// Blocks until ready; runs over as many epochs as asked; rethrows a sample's error at the step
  /// that needs it, and at every call after that.
  StepSamples next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lft::data
