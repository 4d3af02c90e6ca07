#include "models/llava/config.h"

#include <nlohmann/json.hpp>

namespace lft::llava {
namespace {

using Json = nlohmann::json;

void parse_feature_layers(const ConfigFields& top, LlavaConfig* c) {
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

void parse_tokens(const ConfigFields& top, const ConfigFields& text, LlavaConfig* c) {
  // It may lie beyond the vocabulary: its embedding is never looked up.
  top.integer("image_token_id", 0, kMaxVocab, &c->image_token);
  top.integer("image_token_index", 0, kMaxVocab, &c->image_token);
  // -1 is how some files say "none".
  for (const ConfigFields* fields : {&text, &top}) {
    fields->integer("pad_token_id", -1, kMaxVocab, &c->pad_token);
    fields->integer("bos_token_id", -1, kMaxVocab, &c->bos_token);
  }
  const ConfigFields& with_eos = text.find("eos_token_id") != nullptr ? text : top;
  const Json* eos = with_eos.find("eos_token_id");
  if (eos == nullptr) return;
  c->eos_tokens.clear();
  if (eos->is_array() && eos->size() > 64)
    with_eos.fail("eos_token_id", std::to_string(eos->size()) + " ids", "up to 64 ids");
  for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
    const int64_t token = with_eos.checked("eos_token_id", id, -1, kMaxVocab);
    if (token >= 0) c->eos_tokens.push_back(token);
  }
}

void parse_dtype(const ConfigFields& top, const ConfigFields& text, LlavaConfig* c) {
  for (const ConfigFields* fields : {&text, &top}) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      if (fields->find(key) == nullptr) continue;
      fields->text(key, &c->stored_dtype);
      if (c->stored_dtype.starts_with("torch.")) c->stored_dtype.erase(0, 6);
      if (c->stored_dtype != "float32" && c->stored_dtype != "float16" &&
          c->stored_dtype != "bfloat16") {
        fields->fail(key, c->stored_dtype, "float32, float16 or bfloat16");
      }
    }
  }
}

}  // namespace

LlavaConfig LlavaConfig::parse(const Json& config, const std::string& where) {
  const ConfigFields top(config, "", where);
  LlavaConfig c;
  std::string model_type;
  top.one_of("model_type", {"llava"}, &model_type);
  const Json nothing = Json::object();
  const bool has_text = top.find("text_config") != nullptr,
             has_vision = top.find("vision_config") != nullptr;
  const ConfigFields text =
      has_text ? top.child("text_config") : ConfigFields(nothing, "text_config.", where);
  c.text = llama::parse_llama_config(text);
  if (has_vision) {
    c.vision = clip::parse_clip_config(top.child("vision_config"));
  } else {  // ViT-L/14 at 336 pixels, as transformers fills it in
    c.vision = {.hidden = 1024,
                .intermediate = 4096,
                .layers = 24,
                .heads = 16,
                .image_size = 336,
                .patch_size = 14};
  }
  bool tied = false;
  top.flag("tie_word_embeddings", &tied);
  c.text.tie_embeddings = c.text.tie_embeddings || tied;
  parse_feature_layers(top, &c);
  parse_tokens(top, text, &c);
  parse_dtype(top, text, &c);
  std::string strategy = "default";
  top.one_of("vision_feature_select_strategy", {"default", "full"}, &strategy);
  c.select_full = strategy == "full";
  top.flag("multimodal_projector_bias", &c.projector_bias);
  top.one_of("projector_hidden_act", known_activations(), &c.projector_activation);
  return c;
}

}  // namespace lft::llava
