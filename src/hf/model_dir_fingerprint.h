// The fingerprint of a base model.
#pragma once
#include <string>

#include "src/hf/model_dir.h"

namespace lft::hf {

/// sha256 over config and weight headers and sampled blocks: which base an adapter or a checkpoint
/// belongs to.
std::string base_fingerprint(const ModelDir& dir);

}  // namespace lft::hf
