#include "models/llava/llava_names.h"

#include "models/llava/config.h"
#include "models/siglip/siglip_names.h"

namespace lft::llava {
namespace {

void list_clip(const clip::ClipConfig& c, family::TensorList* list) {
  const std::string root = "vision_tower.vision_model.";
  list->add(root + "embeddings.class_embedding", {c.hidden});
  list->add(root + "embeddings.patch_embedding.weight",
            {c.hidden, c.channels, c.patch_size, c.patch_size});
  list->add(root + "embeddings.position_embedding.weight", {c.grid() * c.grid() + 1, c.hidden});
  list->layer_norm(root + "pre_layrnorm", c.hidden);
  list->vision_layers(root, c.hidden, c.intermediate, c.layers);
  list->layer_norm(root + "post_layernorm", c.hidden);
}

}  // namespace

family::CheckpointNames checkpoint_names() {
  family::CheckpointNames names = family::llava_layout_names();
  names.canonical.push_back({"image_newline", "image_newline", /*exact=*/true});
  names.canonical.push_back({"model.image_newline", "image_newline", /*exact=*/true});
  names.peft.push_back({"image_newline", "model.image_newline"});
  return names;
}

std::vector<family::TensorSpec> list_tensors(const family::ModelConfig& config,
                                             const family::ProjectorShape& projector) {
  const LlavaFields& own = fields(config);
  family::TensorList list;
  if (own.kind != Kind::kLlava) list.add("image_newline", {config.text.hidden});
  if (own.siglip) {
    siglip::list_tensors(own.vision, "vision_tower.vision_model.", own.siglip_head, &list);
  } else {
    list_clip(own.vision, &list);
  }
  for (const family::ProjectorShape::Layer& layer : projector.layers)
    list.linear(layer.name, layer.in, layer.out, own.projector_bias);
  list.decoder(config.text);
  return list.tensors;
}

}  // namespace lft::llava
