// The names of the tensors of InternVL.
#pragma once
#include "models/family/checkpoint_names.h"

namespace lft::internvl {

family::CheckpointNames checkpoint_names();

}  // namespace lft::internvl
