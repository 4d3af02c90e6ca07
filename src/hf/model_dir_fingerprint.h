// The fingerprint of a base model.
#pragma once
#include <string>

#include "src/hf/model_dir.h"

namespace lft::hf {

/// sha256 over config, weight headers and sampled blocks. It identifies the base of an adapter or a
/// checkpoint.
std::string base_fingerprint(const ModelDir& dir);

}  // namespace lft::hf
