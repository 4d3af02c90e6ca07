// Finds signs of damage in a base model from its tensors' statistics: each is compared with its
// kind (the same projection in the other layers) and with values that the architecture produces.
// Reported as suspicions, never as errors.
#pragma once
#include <string>
#include <vector>

#include "src/train/inputs/run_inputs.h"
#include "src/train/weights/weight_stats.h"

namespace lft::train {

/// The parts of one line.
struct Suspicion {
  double weight = 0;  // a larger weight is a stronger suspicion
  std::string name;   // a tensor, or layers
  std::string what, found, neighbours, next;
};
std::string suspicion_line(const Suspicion& suspicion);
/// The strongest first, by name if equal.
void sort_suspicions(std::vector<Suspicion>& suspicions);
/// Adds new findings only: none about a tensor that is already named or whose layer or tower is,
/// and none about several things ("A and B") of which one is.
void add_unless_named(std::vector<Suspicion>& all, const std::vector<Suspicion>& more);
/// The `next` of a finding that may be damage or a property of a sound model.
extern const char* const kCompare;
/// The finding about weights that training has not changed.
extern const char* const kLooksRandom;

/// Non-finite values, tensors, rows and columns with one number only, copies.
std::vector<Suspicion> odd_values(const StatsByName& stats);
/// Tensors, rows, columns and single values of another scale than their kind.
std::vector<Suspicion> odd_scales(const StatsByName& stats);
/// Towers, layers and tensors that look randomly
/// initialised, unlike other trained ones.
std::vector<Suspicion> as_initialised(const family::ModelConfig& config, const StatsByName& stats);
/// Whether nearly all matrices of both towers look randomly initialised, which is no fault.
bool looks_untrained(const family::ModelConfig& config, const StatsByName& stats);
/// All of these, sorted; parts of a layer or tower are omitted if the whole is named before.
std::vector<Suspicion> odd_weights(const family::ModelConfig& config, const StatsByName& stats);

/// The same from a sample of each tensor's rows. A tensor that looks odd is read completely, with
/// those of its kind, and judged again: only findings that all of its values confirm are reported.
std::vector<Suspicion> sampled_suspicions(const hf::ModelDir& dir);
/// The warnings of `lft check` and `lft train` about the base, in a few lines. A random projector
/// that the run fully trains is not reported.
std::vector<std::string> base_warnings(const RunInputs& inputs);

}  // namespace lft::train
