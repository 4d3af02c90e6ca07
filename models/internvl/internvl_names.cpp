#include "models/internvl/internvl_names.h"

namespace lft::internvl {

family::CheckpointNames checkpoint_names() {
  family::CheckpointNames names;
  // On disk the names are canonical; in transformers the parts are below "model".
  names.peft = {{"language_model.model", "model.language_model"},
                {"language_model.lm_head", "lm_head"},
                {"vision_tower", "model.vision_tower"},
                {"multi_modal_projector", "model.multi_modal_projector"}};
  for (const family::NameRule& rule : names.peft) {
    names.canonical.push_back({rule.to, rule.from});
    names.canonical.push_back({rule.from, rule.from});
  }
  names.ignored = {".rotary_emb.inv_freq"};
  names.scopes = {{"projector", {"multi_modal_projector"}},
                  {"vision", {"vision_tower"}},
                  {"llm", {"language_model", "lm_head"}}};
  return names;
}

}  // namespace lft::internvl
