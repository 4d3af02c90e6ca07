// The names of the tensors of SmolVLM and Idefics3, the same on disk and in transformers.
#pragma once
#include <vector>

#include "models/family/checkpoint_names.h"
#include "models/family/layout.h"

namespace lft::smolvlm {

family::CheckpointNames checkpoint_names();
/// `projector` is the model's.
std::vector<family::TensorSpec> list_tensors(const family::ModelConfig& config,
                                             const family::ProjectorShape& projector);

}  // namespace lft::smolvlm
