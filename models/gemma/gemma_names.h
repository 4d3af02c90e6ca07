// The names of Gemma 3's tensors, whose layout is LLaVA's.
#pragma once
#include <vector>

#include "models/family/checkpoint_names.h"
#include "models/family/layout.h"

namespace lft::gemma {

constexpr char kTowerNames[] = "vision_tower.vision_model.";

family::CheckpointNames checkpoint_names();
/// `projector` is the model's.
std::vector<family::TensorSpec> list_tensors(const family::ModelConfig& config,
                                             const family::ProjectorShape& projector);

}  // namespace lft::gemma
