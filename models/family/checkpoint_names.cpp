#include "models/family/checkpoint_names.h"

#include <algorithm>

#include "models/family/names.h"

namespace lft::family {
namespace {

constexpr std::string_view kWeightEnd = ".weight";

/// Null if no rule matches.
const NameRule* matching_rule(const std::vector<NameRule>& rules, std::string_view name,
                              std::string_view* rest) {
  for (const NameRule& rule : rules) {
    if (strip(name, rule.from, rest) && (!rule.exact || rest->empty())) return &rule;
  }
  return nullptr;
}

std::string renamed(const std::vector<NameRule>& rules, const std::string& name,
                    const std::string& otherwise) {
  std::string_view rest;
  const NameRule* rule = matching_rule(rules, name, &rest);
  if (rule == nullptr) return otherwise;
  return rule->to.empty() ? "" : joined(rule->to, rest);
}

}  // namespace

bool CheckpointNames::is_experts(std::string_view module) const {
  return std::ranges::any_of(experts, [&](const auto& end) { return module.ends_with(end); });
}

bool CheckpointNames::is_expert_weight(std::string_view name) const {
  return name.ends_with(kWeightEnd) && is_experts(name.substr(0, name.size() - kWeightEnd.size()));
}

std::string CheckpointNames::canonical_name(const std::string& stored,
                                            const ModelConfig& config) const {
  if (std::ranges::any_of(ignored, [&](const auto& end) { return stored.ends_with(end); }))
    return "";
  if (std::string_view rest; std::ranges::any_of(
          ignored_parts, [&](const auto& part) { return strip(stored, part, &rest); }))
    return "";
  const std::string name = tensor_of_peft(stored);
  if (name.empty()) return stored;
  return config.text.tie_embeddings && name == "language_model.lm_head.weight" ? "" : name;
}

std::string CheckpointNames::as_stored(const std::string& name) const {
  return is_expert_weight(name) ? name.substr(0, name.size() - kWeightEnd.size()) : name;
}

std::string CheckpointNames::stored_name(const std::string& name) const {
  return as_stored(renamed(stored, name, name));
}

std::string CheckpointNames::peft_name(const std::string& name) const {
  return renamed(peft, name, name);
}

std::string CheckpointNames::whole_name(const std::string& name) const {
  return as_stored(renamed(newest, name, peft_name(name)));
}

std::string CheckpointNames::from_peft_name(const std::string& peft) const {
  if (experts.empty() && peft.find(".mlp.experts") != std::string::npos) return "";
  return renamed(canonical, peft, "");
}

std::string CheckpointNames::tensor_of_peft(const std::string& peft) const {
  const std::string name = from_peft_name(peft);
  return is_experts(name) ? name + std::string(kWeightEnd) : name;
}

std::vector<std::string> CheckpointNames::modules_of_scope(const std::string& scope) const {
  const auto found = scopes.find(scope);
  return found == scopes.end() ? std::vector<std::string>() : found->second;
}

CheckpointNames llava_layout_names() {
  CheckpointNames names;
  names.canonical = {{"model.language_model", "language_model.model"},
                     {"language_model.model", "language_model.model"},
                     {"language_model.lm_head", "language_model.lm_head"},
                     {"lm_head", "language_model.lm_head"}};
  for (const std::string& root : {std::string(), std::string("model.")}) {
    const std::string tower = root + "vision_tower", canonical = "vision_tower.vision_model";
    names.canonical.push_back({root + "multi_modal_projector", "multi_modal_projector"});
    names.canonical.push_back({tower, "vision_tower", /*exact=*/true});
    names.canonical.push_back({tower + ".vision_model", canonical});
    for (const char* part :  // parts in transformers >= 5.6
         {".embeddings", ".pre_layrnorm", ".encoder.layers", ".post_layernorm", ".head"})
      names.canonical.push_back({tower + part, canonical + part});
  }
  names.peft = {{"language_model.model", "model.language_model"},
                {"language_model.lm_head", "lm_head"},
                {"vision_tower", "model.vision_tower"},
                {"multi_modal_projector", "model.multi_modal_projector"}};
  names.newest = {{"vision_tower.vision_model", "model.vision_tower"}};
  names.ignored = {".position_ids", ".rotary_emb.inv_freq"};
  names.scopes = {{"projector", {"multi_modal_projector"}},
                  {"vision", {"vision_tower"}},
                  {"llm", {"language_model", "lm_head"}}};
  return names;
}

}  // namespace lft::family
