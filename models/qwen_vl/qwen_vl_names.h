// The names of the tensors of Qwen-VL. The published Qwen2-VL and Qwen2.5-VL have no "model."
// before their parts, Qwen3-VL and Qwen3.5 have it; both spellings are read.
#pragma once
#include "models/family/checkpoint_names.h"
#include "models/qwen_vl/config.h"

namespace lft::qwen_vl {

family::CheckpointNames checkpoint_names(Kind kind);

}  // namespace lft::qwen_vl
