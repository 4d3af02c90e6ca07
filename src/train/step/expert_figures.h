// How evenly the experts of a step's layers are used.
#pragma once
#include <cstdint>
#include <vector>

#include "models/objective/objective.h"

namespace lft::train {

/// `tokens` of each of the `experts` of a layer, layer by layer; empty: no figures.
/// `experts_unused`: the share of them, over all layers, that computed no token. `expert_load`: the
/// largest share of a layer's choices that one expert computed, relative to 1 / experts.
objective::Figures expert_figures(const std::vector<int64_t>& tokens, int64_t experts);

}  // namespace lft::train
