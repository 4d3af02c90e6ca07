#include "models/siglip/siglip_names.h"

namespace lft::siglip {

void list_tensors(const clip::ClipConfig& config, const std::string& root, bool has_head,
                  family::TensorList* list) {
  const clip::ClipConfig& c = config;
  list->add(root + "embeddings.patch_embedding.weight",
            {c.hidden, c.channels, c.patch_size, c.patch_size});
  list->add(root + "embeddings.patch_embedding.bias", {c.hidden});
  list->add(root + "embeddings.position_embedding.weight", {c.grid() * c.grid(), c.hidden});
  list->vision_layers(root, c.hidden, c.intermediate, c.layers);
  list->layer_norm(root + "post_layernorm", c.hidden);
  if (!has_head) return;
  list->add(root + "head.probe", {1, 1, c.hidden});
  list->add(root + "head.attention.in_proj_weight", {3 * c.hidden, c.hidden});
  list->add(root + "head.attention.in_proj_bias", {3 * c.hidden});
  list->linear(root + "head.attention.out_proj", c.hidden, c.hidden, true);
  list->layer_norm(root + "head.layernorm", c.hidden);
  list->linear(root + "head.mlp.fc1", c.hidden, c.intermediate, true);
  list->linear(root + "head.mlp.fc2", c.intermediate, c.hidden, true);
}

}  // namespace lft::siglip
