#include "models/internvl/internvl_names.h"

namespace lft::internvl {
namespace {

/// From canonical names to those of the original code, on disk and in PEFT.
const std::vector<family::NameRule>& original_names() {
  static const std::vector<family::NameRule> rules = {
      {"language_model.model", "language_model.model"},
      {"language_model.lm_head", "language_model.lm_head"},
      {"vision_tower.embeddings.cls_token", "vision_model.embeddings.class_embedding"},
      {"vision_tower.embeddings.position_embeddings", "vision_model.embeddings.position_embedding"},
      {"vision_tower.embeddings.patch_embeddings.projection",
       "vision_model.embeddings.patch_embedding"},
      {"vision_tower.encoder.layer", "vision_model.encoder.layers"},
      {"multi_modal_projector.layer_norm", "mlp1.0"},
      {"multi_modal_projector.linear_1", "mlp1.1"},
      {"multi_modal_projector.linear_2", "mlp1.3"}};
  return rules;
}

/// On disk the names are canonical; in transformers the parts are below "model".
const std::vector<family::NameRule>& transformers_names() {
  static const std::vector<family::NameRule> rules = {
      {"language_model.model", "model.language_model"},
      {"language_model.lm_head", "lm_head"},
      {"vision_tower", "model.vision_tower"},
      {"multi_modal_projector", "model.multi_modal_projector"}};
  return rules;
}

}  // namespace

family::CheckpointNames checkpoint_names(Layout layout) {
  const bool original = layout == Layout::kOriginal;
  family::CheckpointNames names;
  names.peft = original ? original_names() : transformers_names();
  if (original) names.stored = names.peft;
  for (const family::NameRule& rule : names.peft) {
    names.canonical.push_back({rule.to, rule.from});
    if (!original) names.canonical.push_back({rule.from, rule.from});
  }
  names.ignored = {".rotary_emb.inv_freq"};
  names.scopes = {{"projector", {original ? "mlp1" : "multi_modal_projector"}},
                  {"vision", {original ? "vision_model" : "vision_tower"}},
                  {"llm", {"language_model", "lm_head"}}};
  return names;
}

}  // namespace lft::internvl
