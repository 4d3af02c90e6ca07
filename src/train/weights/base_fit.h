// Whether matrices that share an inner index fit each other, layer by layer: the heads' channels of
// v and o and of q and k, the neurons of an MLP. Works on sums of squares alone.
#pragma once
#include <vector>

#include "src/train/weights/odd_weights.h"

namespace lft::train {

/// Transposed square matrices by name, and pairs that do not belong together.
std::vector<Suspicion> odd_fits(const TowerNames& tower, const StatsByName& stats);

/// The same of the projector's two layers.
std::vector<Suspicion> odd_projector(const family::ProjectorShape& projector,
                                     const StatsByName& stats);

/// Pearson's; 0 where one of the two does not vary.
double correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace lft::train
