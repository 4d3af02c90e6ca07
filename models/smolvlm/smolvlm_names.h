// The names of the tensors of SmolVLM and Idefics3, the same on disk and in transformers.
#pragma once
#include "models/family/checkpoint_names.h"

namespace lft::smolvlm {

family::CheckpointNames checkpoint_names();

}  // namespace lft::smolvlm
