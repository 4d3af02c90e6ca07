// Checks whether the layers of a tower are in the order of training.
#pragma once
#include <string>
#include <vector>

#include "src/train/weights/odd_weights.h"

namespace lft::train {

struct LayerOrder {
  std::vector<Suspicion> suspicions;
  std::string not_judged;  // the reason when no judgement was possible
};
/// Keeps a few vectors of the residual stream's width for every matrix of the tower.
LayerOrder layer_order(const TowerNames& tower, const hf::ModelDir& dir, const StatsByName& stats);

}  // namespace lft::train
