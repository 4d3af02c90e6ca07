// The names of the tensors of LLaVA, LLaVA-NeXT and LLaVA-OneVision.
#pragma once
#include <vector>

#include "models/family/checkpoint_names.h"
#include "models/family/layout.h"

namespace lft::llava {

family::CheckpointNames checkpoint_names();
/// `projector` is the model's.
std::vector<family::TensorSpec> list_tensors(const family::ModelConfig& config,
                                             const family::ProjectorShape& projector);

}  // namespace lft::llava
