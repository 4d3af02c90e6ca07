// Names of LLaVA's tensors: on disk (canonical), in transformers' memory, and in PEFT's three
// dialects.
#include <algorithm>
#include <string_view>

#include "models/llava/llava_family.h"

namespace lft::llava {
namespace {

using family::joined;
using family::strip;
using family::TensorList;

constexpr std::string_view kNewline = "image_newline";

void list_siglip(const LlavaFields& own, TensorList* list) {
  const clip::ClipConfig& c = own.vision;
  const std::string root = "vision_tower.vision_model.";
  list->add(root + "embeddings.patch_embedding.weight",
            {c.hidden, c.channels, c.patch_size, c.patch_size});
  list->add(root + "embeddings.patch_embedding.bias", {c.hidden});
  list->add(root + "embeddings.position_embedding.weight", {c.grid() * c.grid(), c.hidden});
  list->vision_layers(root, c.hidden, c.intermediate, c.layers);
  list->layer_norm(root + "post_layernorm", c.hidden);
  if (!own.siglip_head) return;
  list->add(root + "head.probe", {1, 1, c.hidden});
  list->add(root + "head.attention.in_proj_weight", {3 * c.hidden, c.hidden});
  list->add(root + "head.attention.in_proj_bias", {3 * c.hidden});
  list->linear(root + "head.attention.out_proj", c.hidden, c.hidden, true);
  list->layer_norm(root + "head.layernorm", c.hidden);
  list->linear(root + "head.mlp.fc1", c.hidden, c.intermediate, true);
  list->linear(root + "head.mlp.fc2", c.intermediate, c.hidden, true);
}

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

/// From any spelling to the canonical one; "" for what none of them is.
std::string to_canonical(std::string_view name) {
  std::string_view rest, inner;
  if (strip(name, "model", &rest)) {  // transformers >= 4.52
    if (strip(rest, "language_model", &inner)) return joined("language_model.model", inner);
    if (rest == kNewline || strip(rest, "multi_modal_projector", &inner) ||
        strip(rest, "vision_tower", &inner))
      return to_canonical(rest);
    return "";
  }
  if (strip(name, "lm_head", &rest)) return joined("language_model.lm_head", rest);
  if (strip(name, "language_model", &rest)) {
    return strip(rest, "model", &inner) || strip(rest, "lm_head", &inner) ? std::string(name) : "";
  }
  if (name == kNewline || strip(name, "multi_modal_projector", &rest)) return std::string(name);
  if (!strip(name, "vision_tower", &rest)) return "";
  if (rest.empty() || strip(rest, "vision_model", &inner)) return std::string(name);
  for (const char* part : {"embeddings", "pre_layrnorm", "encoder", "post_layernorm",
                           "head"}) {  // transformers >= 5.6
    if (strip(rest, part, &inner)) return joined("vision_tower.vision_model", rest);
  }
  return "";
}

}  // namespace

std::vector<family::TensorSpec> LlavaFamily::tensors(const family::ModelConfig& config) const {
  const LlavaFields& own = fields(config);
  TensorList list;
  if (own.kind != Kind::kLlava) list.add(std::string(kNewline), {config.text.hidden});
  if (own.siglip) {
    list_siglip(own, &list);
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
  std::string_view rest;
  if (strip(canonical, "language_model.model", &rest)) return joined("model.language_model", rest);
  if (strip(canonical, "language_model.lm_head", &rest)) return joined("lm_head", rest);
  return "model." + canonical;
}

std::string LlavaFamily::whole_name(const std::string& canonical) const {
  constexpr std::string_view kOld = "vision_tower.vision_model.";
  std::string name = peft_name(canonical);
  if (const size_t at = name.find(kOld); at != std::string::npos)
    name.replace(at, kOld.size(), "vision_tower.");
  return name;
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
