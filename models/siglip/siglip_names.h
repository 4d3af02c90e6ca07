// The tensors and the layout of a SigLIP tower.
#pragma once
#include <string>

#include "models/clip/config.h"
#include "models/family/names.h"
#include "models/family/tower.h"

namespace lft::siglip {

/// `root` is the prefix of the names. `has_head`: the checkpoint contains the pooling head.
void list_tensors(const clip::ClipConfig& config, const std::string& root, bool has_head,
                  family::TensorList* list);

/// A SigLIP or CLIP tower, whose layers are alike; `layers` of them run.
family::Tower tower_of(const clip::ClipConfig& config, const std::string& root, int64_t layers);

}  // namespace lft::siglip
