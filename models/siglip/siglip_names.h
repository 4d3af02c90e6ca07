// The tensors of a SigLIP tower in a checkpoint.
#pragma once
#include <string>

#include "models/clip/config.h"
#include "models/family/names.h"

namespace lft::siglip {

/// `root`: what their names begin with. `has_head`: the pooling head is there.
void list_tensors(const clip::ClipConfig& config, const std::string& root, bool has_head,
                  family::TensorList* list);

}  // namespace lft::siglip
