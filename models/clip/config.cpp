#include "models/clip/config.h"

#include <nlohmann/json.hpp>

namespace lft::clip {

ClipConfig parse_clip_config(const ConfigFields& vision, const ClipConfig& silent) {
  ClipConfig c = silent;
  vision.one_of("hidden_act", known_activations(), &c.activation);
  vision.integer("hidden_size", 1, kMaxHidden, &c.hidden);
  vision.integer("intermediate_size", 1, kMaxIntermediate, &c.intermediate);
  vision.integer("num_hidden_layers", 1, kMaxLayers, &c.layers);
  vision.integer("num_attention_heads", 1, kMaxHeads, &c.heads);
  vision.integer("num_channels", 3, 3, &c.channels);
  vision.square("image_size", 1, kMaxSide, &c.image_size);
  vision.square("patch_size", 1, kMaxSide, &c.patch_size);
  vision.number("layer_norm_eps", 0, 1, &c.layer_norm_eps);
  if (c.hidden % c.heads != 0)
    vision.fail("num_attention_heads", std::to_string(c.heads),
                "a divisor of hidden_size " + std::to_string(c.hidden));
  if (c.patch_size > c.image_size)
    vision.fail("patch_size", std::to_string(c.patch_size),
                "at most image_size " + std::to_string(c.image_size));
  return c;
}

}  // namespace lft::clip
