// What a LLaVA config.json says beside the decoder, with transformers' defaults where it is silent
// (old and new spellings). Plain data.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/clip/config.h"
#include "models/family/config.h"

namespace lft::llava {

struct LlavaFields : family::FamilyFields {
  clip::ClipConfig vision;
  std::vector<int64_t> vision_feature_layers = {-2};  // several: concatenated on the channel
  bool select_full = false;                           // strategy full keeps the CLS position
  bool projector_bias = true;
  std::string projector_activation = "gelu";
  int64_t image_positions() const { return vision.grid() * vision.grid() + (select_full ? 1 : 0); }
  /// Layers of the tower that run.
  int64_t used_layers() const;
};

/// Of a config that this family made.
const LlavaFields& fields(const family::ModelConfig& config);

/// Throws kInput naming the field for anything out of range (hidden 0, negative, heads that do not
/// divide, 2^31, rope 0, ...), an unsupported model_type, activation or rope type. `where` is the
/// file's path for the message.
family::ModelConfig parse_llava(const nlohmann::json& config, const std::string& where);

}  // namespace lft::llava
