// The micro-batches of a run, read ahead by worker threads. Their order (loader_order.h) does not
// depend on the number of workers.
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
#include "src/data/loader_order.h"

namespace lft::data {

/// The micro-batches of one optimizer step, or a rank's share of them. The last step of an epoch
/// may have fewer micro-batches, and its last micro-batch fewer rows.
struct StepSamples {
  int64_t epoch = 0;                          // from 0
  std::vector<std::vector<Sample>> micro;     // [grad_accum][batch_size], or cut by tokens; without
                                              // micro-batches of which all samples were skipped
  std::vector<std::vector<int64_t>> indices;  // dataset indices of the same
  /// The numbers of these micro-batches among all `cut` micro-batches of the step, including
  /// skipped ones: the order in which their gradients are added (src/base/sum_tree.h).
  std::vector<int64_t> numbers = {};
  int64_t cut = 0;
  std::vector<std::string> skipped;                // ids of skipped bad samples, with the reason
  std::vector<int64_t> skipped_indices;            // dataset indices of the same
  std::shared_ptr<const BatchLayout> layout = {};  // the loader's: how micro-batches are made
  /// The batch of the first micro-batch if it was made before its step, otherwise null. The step
  /// takes it and leaves an empty pointer.
  std::shared_ptr<family::Batch> made = {};

  /// The batch of micro-batch `micro`: the one in `made` if it is that one.
  family::Batch take(size_t micro) const;
  family::Batch make(const std::vector<Sample>& samples) const {
    return make_batch(*layout, samples);
  }
};

/// Finds the boundaries of micro-batches within a global batch.
class MicroBatchCutter {
 public:
  explicit MicroBatchCutter(const LoaderOptions& options)
      : batch_size_(options.batch_size), max_tokens_(options.max_tokens) {}
  /// Called for every position from 0. tokens: those of its sample, 0 if it is skipped.
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
  /// Blocks until the next step's samples are read; epochs repeat endlessly. Rethrows the error of
  /// a sample at the step that needs it, and at every later call.
  StepSamples next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lft::data
