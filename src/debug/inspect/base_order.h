// Whether the layers of a tower stand in the order that they were trained in.
#pragma once
#include <string>
#include <vector>

#include "src/train/inputs/odd_weights.h"

namespace lft::debug {

struct LayerOrder {
  std::vector<train::Suspicion> suspicions;
  std::string not_judged;  // why, where nothing could be told
};
/// Holds a few vectors of the residual stream's width for every matrix of the tower.
LayerOrder layer_order(const train::TowerNames& tower, const hf::ModelDir& dir,
                       const train::StatsByName& stats);

}  // namespace lft::debug
