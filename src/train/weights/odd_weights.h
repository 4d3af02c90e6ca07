// What of a base model looks damaged by the statistics of its tensors alone: each against its kind
// (the same projection in the other layers) and against what the architecture produces. Suspicion,
// never refusal.
#pragma once
#include <string>
#include <vector>

#include "src/train/inputs/run_inputs.h"
#include "src/train/weights/weight_stats.h"

namespace lft::train {

/// The parts of one line.
struct Suspicion {
  double weight = 0;  // the larger, the odder
  std::string name;   // a tensor, or layers
  std::string what, found, neighbours, next;
};
std::string suspicion_line(const Suspicion& suspicion);
/// The oddest first, by name where two are as odd.
void sort_suspicions(std::vector<Suspicion>& suspicions);
/// Adds what says something new: nothing of a tensor that is named already, or whose layer or tower
/// is, and nothing of several things ("A and B") of which one is.
void add_unless_named(std::vector<Suspicion>& all, const std::vector<Suspicion>& more);
/// The `next` of a finding that may be damage or a property of a sound model.
extern const char* const kCompare;
/// The finding about weights that training has not changed.
extern const char* const kLooksRandom;

/// Values that are not finite, tensors, rows and columns that hold one number only, copies.
std::vector<Suspicion> odd_values(const StatsByName& stats);
/// Tensors, rows, columns and single values of another scale than their kind.
std::vector<Suspicion> odd_scales(const StatsByName& stats);
/// Towers, layers and tensors that look as an initialisation leaves them, unlike others that are
/// trained.
std::vector<Suspicion> as_initialised(const family::ModelConfig& config, const StatsByName& stats);
/// All of these, sorted; of what a layer or a tower holds nothing where the whole is named first.
std::vector<Suspicion> odd_weights(const family::ModelConfig& config, const StatsByName& stats);

/// The same from a sample of each tensor's rows. A tensor that looks odd in it is read whole, with
/// those of its kind, and judged again: nothing is said that all of its values do not show.
std::vector<Suspicion> sampled_suspicions(const hf::ModelDir& dir);
/// The warnings of `lft check` and `lft train` about the base, in at most a few lines.
/// A random projector that the run trains whole is none of it.
std::vector<std::string> base_warnings(const RunInputs& inputs);

}  // namespace lft::train
