// Checks layer by layer whether matrices with a common inner index match: the heads' channels of v
// and o and of q and k, the neurons of an MLP. Uses only sums of squares.
#pragma once
#include <vector>

#include "src/train/weights/odd_weights.h"

namespace lft::train {

/// Names of transposed square matrices, and of pairs that do not match.
std::vector<Suspicion> odd_fits(const TowerNames& tower, const StatsByName& stats);

/// The same for the projector's two layers.
std::vector<Suspicion> odd_projector(const family::ProjectorShape& projector,
                                     const StatsByName& stats);

/// Pearson correlation; 0 if one of the two is constant.
double correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace lft::train
