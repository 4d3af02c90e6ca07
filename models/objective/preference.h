// Objectives of preference pairs: rows 2i and 2i + 1 of a global batch are the chosen and the
// rejected answer of pair i, and a pair is always within one micro-batch.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/objective/objective.h"
#include "models/objective/pair_losses.h"

namespace lft::objective {

/// The loss of pairs, and what it needs.
struct PairObjective {
  const char* name;
  at::Tensor (*loss)(const PairScores& pairs, const PairOptions& options);
  bool uses_reference;
  double beta;  // its default
};
/// dpo, ipo, hinge, apo_zero, simpo, orpo.
const std::vector<PairObjective>& pair_objectives();

/// The mean over the pairs of the global batch of the loss, plus `sft_weight` times the chosen
/// answer's mean negative log-likelihood. Rewards are beta times the log ratio to the reference, or
/// beta times the log-probability without one; like logps they are of whole answers.
/// `reward_accuracy` counts pairs whose chosen reward is not below the rejected one.
std::unique_ptr<const Objective> make_pair_objective(const PairObjective& kind,
                                                     const PairOptions& options, double sft_weight);

}  // namespace lft::objective
