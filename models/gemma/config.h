// What the config.json of a Gemma 3 says beside the decoder, with transformers' defaults where it
// is silent. Plain data.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/clip/config.h"
#include "models/family/config.h"

namespace lft::gemma {

struct GemmaFields : family::FamilyFields {
  clip::ClipConfig vision;  // of the SigLIP tower, whose layers are CLIP's
  bool vision_head = true;  // its checkpoint has the pooling head, which nothing uses
  int64_t side = 16;        // an image is side x side positions in the text
  int64_t image_positions() const { return side * side; }
  /// So many patches in each direction become one position.
  int64_t pool() const { return vision.grid() / side; }
};

/// Of a config that this family made.
const GemmaFields& fields(const family::ModelConfig& config);

/// Throws kInput naming the field for anything out of range. `where` is the file's path for the
/// message.
family::ModelConfig parse_gemma(const nlohmann::json& config, const std::string& where);

}  // namespace lft::gemma
