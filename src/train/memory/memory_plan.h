// Predicts a run's peak device memory from shapes and exact token counts, without running it.
#pragma once
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/train/inputs/run_settings.h"
#include "src/train/memory/micro_batch.h"

namespace lft::train {

inline constexpr const char* kImagesRead = "images being read";
inline constexpr const char* kFeatures = "image features";  // data.image_cache_mb
struct MemoryPart {
  std::string name;
  double bytes = 0;
};
/// Bytes. The parts are those allocated at the moment of the peak and sum to it.
struct MemoryPlan {
  std::vector<MemoryPart> parts;
  std::string moment;  // "backward pass, decoder layer 6"
  double peak = 0;     // in addition to the process's memory before the model is loaded
  double spare = 0;    // part of the peak that is optional if memory is short: the copies
                       // that verify a CUDA graph
  double free = 0;     // free device memory of the process (free_memory_now), measured
                       // before the model is loaded
  double bytes_of(const std::string& part) const;  // 0 if it is not in memory at the peak
  bool fits() const { return peak - spare <= free; }
};
/// All fields but `free`. Reads recipe, config, dtypes, device and step counts of `inputs`. The
/// trainability proof is a pass like the step's with a micro-batch of one: it needs no more. With
/// CUDA graphs the decoder's passes have separate memory that stays allocated; each graph is
/// verified over two copies of the gradients. Partial gradient sums stay in memory if a process
/// runs several micro-batches in a step (src/base/sum_tree.h).
MemoryPlan plan_memory(const RunSettings& settings, const MicroBatchShape& worst);

/// A change of the recipe, the memory it saves at the peak, and its cost.
struct Mitigation {
  std::string change;  // "train.activation_checkpointing=block"
  double saves = 0;
  std::string cost;  // "about a third more compute"
  bool fits = false;
};
/// Changes that save at least 1% of the peak or make it fit, the cheapest in speed and quality
/// first. `lengths` as above.
std::vector<Mitigation> mitigations(const RunSettings& settings,
                                    const std::vector<data::SampleLength>& lengths,
                                    const MemoryPlan& plan);

/// Whether the decoder's weights could be stored
/// in 4 bits: nothing trains or modifies them.
bool could_store_nf4(const recipe::Recipe& recipe);

/// Pads a text with spaces to a column's width.
std::string filled_to(std::string text, size_t width);

/// Lines to print: the parts, the largest micro-batch, the peak and the free memory, the
/// mitigations.
std::vector<std::string> describe_memory(const MemoryPlan& plan, const MicroBatchShape& worst,
                                         const data::Dataset& dataset,
                                         const std::vector<Mitigation>& changes);

}  // namespace lft::train
