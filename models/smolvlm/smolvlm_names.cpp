#include "models/smolvlm/smolvlm_names.h"

#include "models/siglip/siglip_names.h"
#include "models/smolvlm/config.h"

namespace lft::smolvlm {

family::CheckpointNames checkpoint_names() {
  family::CheckpointNames names;
  names.stored = {{"language_model.lm_head", "lm_head"},
                  {"language_model.model", "model.text_model"},
                  {"multi_modal_projector", "model.connector"},
                  {"vision_tower", "model.vision_model"}};
  names.peft = names.stored;
  for (const family::NameRule& rule : names.stored) names.canonical.push_back({rule.to, rule.from});
  names.ignored = {".position_ids", ".rotary_emb.inv_freq"};
  names.scopes = {{"projector", {"connector"}},
                  {"vision", {"vision_model"}},
                  {"llm", {"text_model", "lm_head"}}};
  return names;
}

std::vector<family::TensorSpec> list_tensors(const family::ModelConfig& config,
                                             const family::ProjectorShape& projector) {
  family::TensorList list;
  siglip::list_tensors(fields(config).vision, "vision_tower.", /*has_head=*/false, &list);
  for (const family::ProjectorShape::Layer& layer : projector.layers)
    list.linear(layer.name, layer.in, layer.out, false);
  list.decoder(config.text);
  return list.tensors;
}

}  // namespace lft::smolvlm
