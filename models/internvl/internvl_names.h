// The names of the tensors of InternVL in both layouts. Inside a block of the tower the modules
// themselves are named by the layout (vision.h).
#pragma once
#include "models/family/checkpoint_names.h"
#include "models/internvl/config.h"

namespace lft::internvl {

family::CheckpointNames checkpoint_names(Layout layout);

}  // namespace lft::internvl
