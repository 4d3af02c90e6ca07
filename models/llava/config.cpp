#include "models/llava/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/llava/llava_family.h"

namespace lft::llava {
namespace {

using Json = nlohmann::json;

void parse_feature_layers(const ConfigFields& top, LlavaFields* c) {
  const char* key = "vision_feature_layer";
  const int64_t low = -c->vision.layers - 1, high = c->vision.layers;
  const Json* found = top.find(key);
  if (found != nullptr) {
    c->vision_feature_layers.clear();
    if (found->is_array() && (found->empty() || found->size() > 64))
      top.fail(key, std::to_string(found->size()) + " layers", "1 to 64 layers");
    for (const Json& layer : found->is_array() ? *found : Json::array({*found}))
      c->vision_feature_layers.push_back(top.checked(key, layer, low, high));
  }
  for (const int64_t layer : c->vision_feature_layers) {
    if (layer < low)
      top.fail(key, std::to_string(layer),
               "a layer the vision tower has (" + std::to_string(c->vision.layers) + " layers)");
  }
}

}  // namespace

const LlavaFields& fields(const family::ModelConfig& config) {
  return static_cast<const LlavaFields&>(*config.own);
}

int64_t LlavaFields::used_layers() const {
  int64_t last = 0;
  for (const int64_t layer : vision_feature_layers)
    last = std::max(last, layer < 0 ? layer + vision.layers + 1 : layer);
  return last;
}

family::ModelConfig parse_llava(const Json& config, const std::string& where) {
  const ConfigFields top(config, "", where);
  family::ModelConfig c;
  c.family = &llava_family();
  const auto own = std::make_shared<LlavaFields>();
  c.image_token = 32000;
  top.one_of("model_type", {"llava"}, &c.model_type);
  const Json nothing = Json::object();
  const bool has_text = top.find("text_config") != nullptr,
             has_vision = top.find("vision_config") != nullptr;
  const ConfigFields text =
      has_text ? top.child("text_config") : ConfigFields(nothing, "text_config.", where);
  c.text = llama::parse_llama_config(text);
  if (has_vision) {
    const ConfigFields vision = top.child("vision_config");
    std::string type = "clip_vision_model";
    vision.one_of("model_type", {type}, &type);
    own->vision = clip::parse_clip_config(vision);
  } else {  // ViT-L/14 at 336 pixels, as transformers fills it in
    own->vision = {.hidden = 1024,
                   .intermediate = 4096,
                   .layers = 24,
                   .heads = 16,
                   .image_size = 336,
                   .patch_size = 14};
  }
  bool tied = false;
  top.flag("tie_word_embeddings", &tied);
  c.text.tie_embeddings = c.text.tie_embeddings || tied;
  parse_feature_layers(top, own.get());
  family::parse_tokens(top, text, &c);
  family::parse_stored_dtype(top, text, &c);
  std::string strategy = "default";
  top.one_of("vision_feature_select_strategy", {"default", "full"}, &strategy);
  own->select_full = strategy == "full";
  top.flag("multimodal_projector_bias", &own->projector_bias);
  top.one_of("projector_hidden_act", known_activations(), &own->projector_activation);
  c.own = own;
  return c;
}

}  // namespace lft::llava
