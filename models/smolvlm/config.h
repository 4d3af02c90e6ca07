// The config.json of a SmolVLM or an Idefics3 without the decoder's fields, with the defaults of
// transformers. Plain data.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/clip/config.h"
#include "models/family/config.h"

namespace lft::smolvlm {

struct SmolVlmFields : family::FamilyFields {
  clip::ClipConfig vision;  // a SigLIP tower, whose layers are CLIP's
  int64_t scale = 2;        // scale x scale patches become one position
  int64_t tile_positions() const {
    return vision.grid() / scale * (vision.grid() / scale);  // positions of a tile in the text
  }
};

/// The fields of a config that this family parsed.
const SmolVlmFields& fields(const family::ModelConfig& config);

/// Throws kInput naming the field for anything out of range. `where` is the file's path for the
/// message.
family::ModelConfig parse_smolvlm(const nlohmann::json& config, const std::string& where);

}  // namespace lft::smolvlm
