// Names of Gemma 3's tensors, whose parts lie as LLaVA's: on disk, in transformers' memory and in
// PEFT's dialects.
#include "models/gemma/gemma_family.h"
#include "models/siglip/siglip_names.h"

namespace lft::gemma {
namespace {

constexpr char kTowerNames[] = "vision_tower.vision_model.";

}  // namespace

std::vector<family::TensorSpec> GemmaFamily::tensors(const family::ModelConfig& config) const {
  const GemmaFields& own = fields(config);
  family::TensorList list;
  siglip::list_tensors(own.vision, kTowerNames, own.vision_head, &list);
  const family::ProjectorShape::Layer product = projector(config).layers.front();
  list.add(product.weight(), {product.in, product.out});
  list.add("multi_modal_projector.mm_soft_emb_norm.weight", {own.vision.hidden});
  list.decoder(config.text);
  return list.tensors;
}

std::string GemmaFamily::canonical_name(const std::string& stored,
                                        const family::ModelConfig& config) const {
  if (stored.ends_with(".position_ids") || stored.ends_with("inv_freq")) return "";
  const std::string canonical = family::canonical_of_parts(stored);
  if (canonical.empty()) return stored;  // none of ours: the loader reports it as extra
  return config.text.tie_embeddings && canonical == "language_model.lm_head.weight" ? ""
                                                                                    : canonical;
}

std::string GemmaFamily::stored_name(const std::string& canonical) const { return canonical; }

std::string GemmaFamily::peft_name(const std::string& canonical) const {
  return family::peft_name_of_parts(canonical);
}

std::string GemmaFamily::whole_name(const std::string& canonical) const {
  return family::whole_name_of_parts(canonical);
}

std::string GemmaFamily::from_peft_name(const std::string& peft) const {
  return family::canonical_of_parts(peft);
}

std::vector<std::string> GemmaFamily::modules_of_scope(const std::string& scope) const {
  if (scope == "projector") return {"multi_modal_projector"};
  if (scope == "vision") return {"vision_tower"};
  if (scope == "llm") return {"language_model", "lm_head"};
  return {};
}

std::vector<std::string> GemmaFamily::unused_modules(const family::ModelConfig& config) const {
  if (!fields(config).vision_head) return {};
  return {"vision_tower.vision_model.head"};
}

}  // namespace lft::gemma
