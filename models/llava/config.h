// The config.json of a LLaVA without the decoder's fields, in old and new spellings, with the
// defaults of transformers. Plain data.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/clip/config.h"
#include "models/family/config.h"
#include "models/family/image_processor.h"

namespace lft::llava {

/// LLaVA-1.5, and the variants that preprocess images differently.
enum class Kind { kLlava, kNext, kOneVision };

struct LlavaFields : family::FamilyFields {
  Kind kind = Kind::kLlava;
  clip::ClipConfig vision;
  bool siglip = false;                // a SigLIP tower, without a class position
  bool siglip_head = false;           // the checkpoint contains the pooling head, which is unused
  std::vector<image::Size> canvases;  // kNext, kOneVision: in pixels
  int64_t most_tiles = 0;             // features of more tiles are reduced; 0: never
  std::vector<int64_t> vision_feature_layers = {-2};  // several: concatenated on the channel
  bool select_full = false;                           // strategy full keeps the CLS position
  bool projector_bias = true;
  std::string projector_activation = "gelu";
  /// Positions of a tile in the text.
  int64_t tile_positions() const {
    return vision.grid() * vision.grid() + (select_full && !siglip ? 1 : 0);
  }
  int64_t image_positions(const family::ImageShape& image) const;
  /// Positions of a tile in the vision tower.
  int64_t tower_positions() const { return vision.grid() * vision.grid() + (siglip ? 0 : 1); }
  /// The number of layers of the tower that run.
  int64_t used_layers() const;
};

/// The fields of a config that this family parsed.
const LlavaFields& fields(const family::ModelConfig& config);

/// Throws kInput naming the field for anything out of range (hidden 0, negative, heads that do not
/// divide, 2^31, rope 0, ...), an unsupported model_type, activation or rope type. `where` is the
/// file's path for the message.
family::ModelConfig parse_llava(const nlohmann::json& config, const std::string& where,
                                Kind kind = Kind::kLlava);

}  // namespace lft::llava
