// Names of LLaVA's tensors: on disk (canonical), in transformers' memory, and in PEFT's three
// dialects.
#include <algorithm>
#include <string_view>

#include "models/llava/llava_family.h"
#include "models/siglip/siglip_names.h"

namespace lft::llava {
namespace {

using family::joined;
using family::strip;
using family::TensorList;

constexpr std::string_view kNewline = "image_newline";

void list_clip(const clip::ClipConfig& c, TensorList* list) {
  const std::string root = "vision_tower.vision_model.";
  list->add(root + "embeddings.class_embedding", {c.hidden});
  list->add(root + "embeddings.patch_embedding.weight",
            {c.hidden, c.channels, c.patch_size, c.patch_size});
  list->add(root + "embeddings.position_embedding.weight", {c.grid() * c.grid() + 1, c.hidden});
  list->layer_norm(root + "pre_layrnorm", c.hidden);
  list->vision_layers(root, c.hidden, c.intermediate, c.layers);
  list->layer_norm(root + "post_layernorm", c.hidden);
}

std::string to_canonical(std::string_view name) {
  std::string_view rest;
  if (name == kNewline || (strip(name, "model", &rest) && rest == kNewline))
    return std::string(kNewline);
  return family::canonical_of_parts(name);
}

}  // namespace

std::vector<family::TensorSpec> LlavaFamily::tensors(const family::ModelConfig& config) const {
  const LlavaFields& own = fields(config);
  TensorList list;
  if (own.kind != Kind::kLlava) list.add(std::string(kNewline), {config.text.hidden});
  if (own.siglip) {
    siglip::list_tensors(own.vision, "vision_tower.vision_model.", own.siglip_head, &list);
  } else {
    list_clip(own.vision, &list);
  }
  for (const family::ProjectorShape::Layer& layer : projector(config).layers)
    list.linear(layer.name, layer.in, layer.out, own.projector_bias);
  list.decoder(config.text);
  return list.tensors;
}

std::string LlavaFamily::canonical_name(const std::string& stored,
                                        const family::ModelConfig& config) const {
  if (stored.ends_with(".position_ids") || stored.ends_with(".rotary_emb.inv_freq")) return "";
  const std::string canonical = to_canonical(stored);
  if (canonical.empty()) return stored;  // none of ours: the loader reports it as extra
  return config.text.tie_embeddings && canonical == "language_model.lm_head.weight" ? ""
                                                                                    : canonical;
}

std::string LlavaFamily::stored_name(const std::string& canonical) const { return canonical; }

std::string LlavaFamily::peft_name(const std::string& canonical) const {
  return family::peft_name_of_parts(canonical);
}

std::string LlavaFamily::whole_name(const std::string& canonical) const {
  return family::whole_name_of_parts(canonical);
}

std::string LlavaFamily::from_peft_name(const std::string& peft) const {
  return to_canonical(peft);
}

std::vector<std::string> LlavaFamily::modules_of_scope(const std::string& scope) const {
  if (scope == "projector") return {"multi_modal_projector"};
  if (scope == "vision") return {"vision_tower"};
  if (scope == "llm") return {"language_model", "lm_head"};
  return {};
}

std::vector<std::string> LlavaFamily::unused_modules(const family::ModelConfig& config) const {
  const LlavaFields& own = fields(config);
  std::vector<std::string> unused;
  for (int64_t i = own.used_layers(); i < own.vision.layers; ++i) {
    unused.push_back(joined("vision_tower.vision_model.encoder.layers", std::to_string(i)));
  }
  unused.emplace_back("vision_tower.vision_model.post_layernorm");
  if (own.siglip_head) unused.emplace_back("vision_tower.vision_model.head");
  return unused;
}

std::string LlavaFamily::unused_reason(const family::ModelConfig& config) const {
  const LlavaFields& own = fields(config);
  std::string layers;
  for (const int64_t layer : own.vision_feature_layers)
    layers += (layers.empty() ? "" : ", ") + std::to_string(layer);
  return "no output of it is used: with vision_feature_layer " + layers + " of " +
         std::to_string(own.vision.layers) + " layers it lies after the last features that are";
}

}  // namespace lft::llava
