// Predicts the peak device memory of a run from shapes and exact token counts; nothing is run.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/lengths.h"
#include "src/train/inputs/run_settings.h"

namespace lft::train {

/// One micro-batch and its step. No samples where no sample of the run is both good and
/// supervised.
struct MicroBatchShape {
  std::vector<data::SampleLength> samples;  // bad ones left out
  std::vector<int64_t> indices;             // of the dataset
  int64_t step = 0;                         // from 1
  int64_t in_step = 0;                      // micro-batches of the run's longest step; 0: not known
  bool packed = false;                      // train.max_tokens_per_step: no padding
  double reading = 0;  // bytes that threads may hold of images they read: data::ReadingBudget
  int64_t longest() const;
  int64_t positions() const;  // padding counted
  int64_t images() const { return sum(&data::SampleLength::images); }
  int64_t supervised() const { return sum(&data::SampleLength::supervised); }
  template <class Number>
  int64_t sum(Number data::SampleLength::*member) const {
    int64_t sum = 0;
    for (const data::SampleLength& sample : samples) sum += sample.*member;
    return sum;
  }
};
/// The micro-batch that needs the most memory of those it is shown; the first of equals.
class LargestMicroBatch {
 public:
  explicit LargestMicroBatch(const RunSettings& settings);
  void consider(MicroBatchShape batch);
  /// No samples where none that it was shown is supervised.
  const MicroBatchShape& largest() const { return largest_; }

 private:
  /// Bytes that a micro-batch adds for a position (padding counted), a position of the vision
  /// tower, a supervised token. A pass is linear in each but for the LM head's last chunk.
  struct Weights {
    double token = 0, tower = 0, supervised = 0;
  };
  static Weights weigh(const RunSettings& settings);

  Weights weights_;
  MicroBatchShape largest_;
  double most_ = 0;
};

/// The one of the whole run, every epoch in its order, that needs the most memory; the first of
/// equals. `lengths`: measure_lengths() of the rows to train on.
MicroBatchShape worst_micro_batch(const RunSettings& settings,
                                  const std::vector<data::SampleLength>& lengths);

inline constexpr const char* kImagesRead = "images being read";
struct MemoryPart {
  std::string name;
  double bytes = 0;
};
/// Bytes. The parts are what is held at the moment of the peak and sum to it.
struct MemoryPlan {
  std::vector<MemoryPart> parts;
  std::string moment;  // "backward pass, decoder layer 6"
  double peak = 0;     // beyond what the process held before the model was loaded
  double spare = 0;    // of the peak, what the run does without where it is not there: the copies
                       // that prove a CUDA graph
  double free = 0;     // what the process can still get on the device (free_memory_now), as asked
                       // before the model is loaded
  bool fits() const { return peak - spare <= free; }
};
/// All but `free`. Reads of `inputs` the recipe, config, dtypes, device and numbers of steps. The
/// trainability proof is a pass like the step's, over a micro-batch of one: it needs no more.
/// With CUDA graphs the decoder's passes have memory of their own, which stays when they are over;
/// each graph is proven over two copies of the gradients. Sums of gradients wait for each other
/// where a process runs several micro-batches in a step (src/base/sum_tree.h).
MemoryPlan plan_memory(const RunSettings& settings, const MicroBatchShape& worst);

/// A change of the recipe and what it would save of the peak, at what cost.
struct Mitigation {
  std::string change;  // "train.activation_checkpointing=block"
  double saves = 0;
  std::string cost;  // "about a third more compute"
  bool fits = false;
};
/// Those that save anything, the cheapest in speed and quality first. `lengths` as above.
std::vector<Mitigation> mitigations(const RunSettings& settings,
                                    const std::vector<data::SampleLength>& lengths,
                                    const MemoryPlan& plan);

/// Whether the decoder's weights could be stored in 4 bits instead: nothing trains or rewrites
/// them.
bool could_store_nf4(const recipe::Recipe& recipe);

/// Pads a text with blanks to a column's width.
std::string filled_to(std::string text, size_t width);

/// Lines to print: the parts, the worst micro-batch, the peak against the free memory, the
/// mitigations.
std::vector<std::string> describe_memory(const MemoryPlan& plan, const MicroBatchShape& worst,
                                         const data::Dataset& dataset,
                                         const std::vector<Mitigation>& changes);

}  // namespace lft::train
