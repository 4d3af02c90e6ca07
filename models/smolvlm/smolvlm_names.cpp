#include "models/smolvlm/smolvlm_names.h"

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

}  // namespace lft::smolvlm
