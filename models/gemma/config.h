// The config.json of a Gemma 3 without the decoder's fields, with the defaults of transformers.
// Plain data.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/clip/config.h"
#include "models/family/config.h"

namespace lft::gemma {

struct GemmaFields : family::FamilyFields {
  clip::ClipConfig vision;  // a SigLIP tower, whose layers are CLIP's
  bool vision_head = true;  // the checkpoint contains the pooling head, which is unused
  int64_t side = 16;        // an image is side x side positions in the text
  int64_t image_positions() const { return side * side; }
  /// Patches in each direction that are averaged to one position.
  int64_t pool() const { return vision.grid() / side; }
};

/// The fields of a config that this family parsed.
const GemmaFields& fields(const family::ModelConfig& config);

/// Throws kInput naming the field for anything out of range. `where` is the file's path for the
/// message.
family::ModelConfig parse_gemma(const nlohmann::json& config, const std::string& where);

}  // namespace lft::gemma
