// The config.json of an InternVL without the decoder's fields, with the defaults of transformers.
// Plain data.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/clip/config.h"
#include "models/family/config.h"

namespace lft::internvl {

struct InternVlFields : family::FamilyFields {
  clip::ClipConfig vision;
  bool qkv_bias = false, qk_norm = false;  // of the tower's attention
  bool rms_norms = false;                  // in the tower's blocks
  int64_t scale = 2;                       // scale x scale patches become one position
  std::string activation = "gelu";         // of the projector
  int64_t merged() const { return vision.hidden * scale * scale; }  // features of a position
  int64_t tile_positions() const {
    return vision.grid() / scale * (vision.grid() / scale);  // positions of a tile in the text
  }
};

/// The fields of a config that this family parsed.
const InternVlFields& fields(const family::ModelConfig& config);

/// Throws kInput naming the field for anything out of range. `where` is the file's path for the
/// message.
family::ModelConfig parse_internvl(const nlohmann::json& config, const std::string& where);

}  // namespace lft::internvl
