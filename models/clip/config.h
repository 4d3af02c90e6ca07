// The vision part of a config.json with a CLIP tower, with the defaults of transformers. Plain
// data.
#pragma once
#include <cstdint>
#include <string>

#include "models/base/config_fields.h"

namespace lft::clip {

struct ClipConfig {
  int64_t hidden = 768, intermediate = 3072, layers = 12, heads = 12, image_size = 224,
          patch_size = 32, channels = 3;
  double layer_norm_eps = 1e-5;
  std::string activation = "quick_gelu";
  int64_t grid() const { return image_size / patch_size; }
};

/// `silent`: the defaults of absent fields. Throws kInput naming the field for anything out of
/// range or an unsupported activation; the caller checks model_type.
ClipConfig parse_clip_config(const ConfigFields& fields, const ClipConfig& silent = {});

}  // namespace lft::clip
