#include "models/gemma/gemma_names.h"

#include "models/gemma/config.h"
#include "models/siglip/siglip_names.h"

namespace lft::gemma {

family::CheckpointNames checkpoint_names() {
  family::CheckpointNames names = family::llava_layout_names();
  names.ignored = {".position_ids", "inv_freq"};
  return names;
}

std::vector<family::TensorSpec> list_tensors(const family::ModelConfig& config,
                                             const family::ProjectorShape& projector) {
  const GemmaFields& own = fields(config);
  family::TensorList list;
  siglip::list_tensors(own.vision, kTowerNames, own.vision_head, &list);
  const family::ProjectorShape::Layer& product = projector.layers.front();
  list.add(product.weight(), {product.in, product.out});
  list.add("multi_modal_projector.mm_soft_emb_norm.weight", {own.vision.hidden});
  list.decoder(config.text);
  return list.tensors;
}

}  // namespace lft::gemma
