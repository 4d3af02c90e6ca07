// Names of SmolVLM's tensors: canonical, on disk and in transformers' memory, which are the same.
#include <string_view>

#include "models/siglip/siglip_names.h"
#include "models/smolvlm/smolvlm_family.h"

namespace lft::smolvlm {
namespace {

using family::joined;
using family::strip;
using family::TensorList;

/// From a name on disk or in memory; "" for what is none of the model's.
std::string to_canonical(std::string_view name) {
  std::string_view rest, inner;
  if (strip(name, "lm_head", &rest)) return joined("language_model.lm_head", rest);
  if (!strip(name, "model", &rest)) return "";
  if (strip(rest, "text_model", &inner)) return joined("language_model.model", inner);
  if (strip(rest, "connector", &inner)) return joined("multi_modal_projector", inner);
  if (strip(rest, "vision_model", &inner)) return joined("vision_tower", inner);
  return "";
}

}  // namespace

std::vector<family::TensorSpec> SmolVlmFamily::tensors(const family::ModelConfig& config) const {
  TensorList list;
  siglip::list_tensors(fields(config).vision, "vision_tower.", /*has_head=*/false, &list);
  for (const family::ProjectorShape::Layer& layer : projector(config).layers)
    list.linear(layer.name, layer.in, layer.out, false);
  list.decoder(config.text);
  return list.tensors;
}

std::string SmolVlmFamily::canonical_name(const std::string& stored,
                                          const family::ModelConfig& config) const {
  if (stored.ends_with(".position_ids") || stored.ends_with(".rotary_emb.inv_freq")) return "";
  const std::string canonical = to_canonical(stored);
  if (canonical.empty()) return stored;  // none of ours: the loader reports it as extra
  return config.text.tie_embeddings && canonical == "language_model.lm_head.weight" ? ""
                                                                                    : canonical;
}

std::string SmolVlmFamily::stored_name(const std::string& canonical) const {
  std::string_view rest;
  if (strip(canonical, "language_model.lm_head", &rest)) return joined("lm_head", rest);
  if (strip(canonical, "language_model.model", &rest)) return joined("model.text_model", rest);
  if (strip(canonical, "multi_modal_projector", &rest)) return joined("model.connector", rest);
  if (strip(canonical, "vision_tower", &rest)) return joined("model.vision_model", rest);
  return canonical;
}

std::string SmolVlmFamily::peft_name(const std::string& canonical) const {
  return stored_name(canonical);
}

std::string SmolVlmFamily::from_peft_name(const std::string& peft) const {
  return to_canonical(peft);
}

std::vector<std::string> SmolVlmFamily::modules_of_scope(const std::string& scope) const {
  if (scope == "projector") return {"connector"};
  if (scope == "vision") return {"vision_model"};
  if (scope == "llm") return {"text_model", "lm_head"};
  return {};
}

std::vector<std::string> SmolVlmFamily::unused_modules(const family::ModelConfig&) const {
  return {};
}

}  // namespace lft::smolvlm
