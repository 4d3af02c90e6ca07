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

family::Tower tower_of(const clip::ClipConfig& config, const std::string& root, int64_t layers) {
  return {.label = "vision tower",
          .layers = root + "encoder.layers.",
          .count = layers,
          .width = config.hidden,
          .inner = config.intermediate,
          .heads = config.heads,
          .kv_heads = config.heads,
          .head_dim = config.hidden / config.heads,
          .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          .o = "self_attn.out_proj",
          .mlp_in = {"mlp.fc1"},
          .mlp_out = "mlp.fc2",
          .norms = {"layer_norm1", "layer_norm2"},
          .tables = {root + "embeddings.patch_embedding.weight",
                     root + "embeddings.position_embedding.weight"}};
}

}  // namespace lft::siglip
