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

void list_vision(const clip::ClipConfig& c, TensorList* list) {
  const std::string root = "vision_tower.vision_model.";
  list->add(root + "embeddings.class_embedding", {c.hidden});
  list->add(root + "embeddings.patch_embedding.weight",
            {c.hidden, c.channels, c.patch_size, c.patch_size});
  list->add(root + "embeddings.position_embedding.weight", {c.grid() * c.grid() + 1, c.hidden});
  list->layer_norm(root + "pre_layrnorm", c.hidden);
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = root + "encoder.layers." + std::to_string(i) + ".";
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"})
      list->linear(layer + "self_attn." + name, c.hidden, c.hidden, true);
    list->layer_norm(layer + "layer_norm1", c.hidden);
    list->linear(layer + "mlp.fc1", c.hidden, c.intermediate, true);
    list->linear(layer + "mlp.fc2", c.intermediate, c.hidden, true);
    list->layer_norm(layer + "layer_norm2", c.hidden);
  }
  list->layer_norm(root + "post_layernorm", c.hidden);
}

/// From any spelling to the canonical one; "" for what none of them is.
std::string to_canonical(std::string_view name) {
  std::string_view rest, inner;
  if (strip(name, "model", &rest)) {  // transformers >= 4.52
    if (strip(rest, "language_model", &inner)) return joined("language_model.model", inner);
    if (strip(rest, "multi_modal_projector", &inner) || strip(rest, "vision_tower", &inner))
      return to_canonical(rest);
    return "";
  }
  if (strip(name, "lm_head", &rest)) return joined("language_model.lm_head", rest);
  if (strip(name, "language_model", &rest)) {
    return strip(rest, "model", &inner) || strip(rest, "lm_head", &inner) ? std::string(name) : "";
  }
  if (strip(name, "multi_modal_projector", &rest)) return std::string(name);
  if (!strip(name, "vision_tower", &rest)) return "";
  if (rest.empty() || strip(rest, "vision_model", &inner)) return std::string(name);
  for (const char* part :
       {"embeddings", "pre_layrnorm", "encoder", "post_layernorm"}) {  // transformers >= 5.6
    if (strip(rest, part, &inner)) return joined("vision_tower.vision_model", rest);
  }
  return "";
}

}  // namespace

std::vector<family::TensorSpec> LlavaFamily::tensors(const family::ModelConfig& config) const {
  const LlavaFields& own = fields(config);
  TensorList list;
  list_vision(own.vision, &list);
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
