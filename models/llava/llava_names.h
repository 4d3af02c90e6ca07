// The names of the tensors of LLaVA, LLaVA-NeXT and LLaVA-OneVision.
#pragma once
#include "models/family/checkpoint_names.h"

namespace lft::llava {

family::CheckpointNames checkpoint_names();

}  // namespace lft::llava
