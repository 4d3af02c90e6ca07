// The config.json of an InternVL without the decoder's fields, with the defaults of transformers
// or, in the original layout, of the code that comes with those checkpoints. Plain data.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/clip/config.h"
#include "models/family/config.h"

namespace lft::internvl {

/// The layout of transformers, and the original one, whose checkpoints come with their own code.
enum class Layout { kTransformers, kOriginal };

/// The smallest and the largest number of tiles, without the whole image.
struct TileBounds {
  int64_t least = 1, most = 12;
};

struct InternVlFields : family::FamilyFields {
  Layout layout = Layout::kTransformers;
  clip::ClipConfig vision;
  TileBounds tiles;                        // unless the processor's file has others
  bool thumbnail = true;                   // the whole image follows its tiles
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
family::ModelConfig parse_internvl(Layout layout, const nlohmann::json& config,
                                   const std::string& where);

}  // namespace lft::internvl
