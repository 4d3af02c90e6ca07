// The names of Gemma 3's tensors, whose layout is LLaVA's.
#pragma once
#include "models/family/checkpoint_names.h"

namespace lft::gemma {

family::CheckpointNames checkpoint_names();

}  // namespace lft::gemma
