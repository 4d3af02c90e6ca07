// The names of Gemma 3's tensors, which have LLaVA's layout.
#pragma once
#include "models/family/checkpoint_names.h"

namespace lft::gemma {

family::CheckpointNames checkpoint_names();

}  // namespace lft::gemma
