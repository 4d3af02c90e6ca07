// The figures of an evaluation in a line.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace lft::report {

/// ", exact match 0.5000": each figure by its name. Of an objective of preferences only
/// ", accuracy 0.7500, margin 0.3000", which fit a line; metrics.jsonl has the others.
std::string figures_text(const std::vector<std::pair<std::string, double>>& figures);

/// Up to rounding, as at the reference: which of two such rewards is the higher one has no meaning.
bool is_zero_reward(double reward);
/// Whether all rewards among the figures are: the model is its reference, and their accuracy counts
/// ties. False without rewards.
bool at_reference(const std::vector<std::pair<std::string, double>>& figures);

}  // namespace lft::report
