#include "models/internvl/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/internvl/internvl_family.h"

namespace lft::internvl {
namespace {

using Json = nlohmann::json;

/// The InternViT-300M, which is the tower of all models up to 14B.
const clip::ClipConfig kSilent = {.hidden = 1024,
                                  .intermediate = 4096,
                                  .layers = 24,
                                  .heads = 16,
                                  .image_size = 448,
                                  .patch_size = 14,
                                  .layer_norm_eps = 1e-6,
                                  .activation = "gelu"};

/// A field that only has one supported value.
void require_flag(const ConfigFields& fields, const char* key, bool wanted) {
  bool value = wanted;
  fields.flag(key, &value);
  if (value != wanted) fields.fail(key, value ? "true" : "false", wanted ? "true" : "false");
}

/// The defaults of the original code: an InternViT-6B.
const clip::ClipConfig kOriginalSilent = {.hidden = 3200,
                                          .intermediate = 12800,
                                          .layers = 48,
                                          .heads = 25,
                                          .image_size = 224,
                                          .patch_size = 14,
                                          .layer_norm_eps = 1e-6,
                                          .activation = "gelu"};

void parse_original_vision(const ConfigFields& vision, InternVlFields* own) {
  std::string model_type = "intern_vit_6b", norm = "rms_norm";
  vision.one_of("model_type", {"intern_vit_6b"}, &model_type);
  own->vision = clip::parse_clip_config(vision, kOriginalSilent);
  own->qk_norm = true;
  vision.flag("qkv_bias", &own->qkv_bias);
  vision.flag("qk_normalization", &own->qk_norm);
  vision.one_of("norm_type", {"layer_norm", "rms_norm"}, &norm);
  own->rms_norms = norm == "rms_norm";
}

void parse_vision(const ConfigFields& vision, InternVlFields* own) {
  std::string model_type = "internvl_vision", norm = "layer_norm";
  vision.one_of("model_type", {"internvl_vision"}, &model_type);
  own->vision = clip::parse_clip_config(vision, kSilent);
  vision.flag("attention_bias", &own->qkv_bias);
  vision.flag("use_qk_norm", &own->qk_norm);
  vision.one_of("norm_type", {"layer_norm", "rms_norm"}, &norm);
  own->rms_norms = norm == "rms_norm";
  require_flag(vision, "use_absolute_position_embeddings", true);
  require_flag(vision, "use_mask_token", false);
  require_flag(vision, "use_mean_pooling", true);
}

void parse_scale(const ConfigFields& top, InternVlFields* own) {
  double ratio = 0.5;
  top.number("downsample_ratio", 0, 1, &ratio);
  own->scale = std::lround(1 / ratio);
  const bool whole = std::abs(static_cast<double>(own->scale) * ratio - 1) < 1e-6;
  if (!whole || own->vision.grid() % own->scale != 0)
    top.fail("downsample_ratio", Json(ratio).dump(),
             "1 divided by a divisor of the " + std::to_string(own->vision.grid()) +
                 " patches of a tile's side");
}

/// The fields that only one layout has.
void parse_original(const ConfigFields& top, const ConfigFields& vision, InternVlFields* own) {
  parse_original_vision(vision, own);
  bool dynamic = false;
  int64_t layer = -1, side = own->vision.image_size;
  std::string shuffle = "v1";
  top.integer("select_layer", -1, -1, &layer);
  top.text("ps_version", &shuffle);
  if (shuffle != "v2") top.fail("ps_version", shuffle, "v2");
  top.integer("force_image_size", side, side, &side);
  own->tiles.most = 6;
  own->thumbnail = false;
  top.integer("min_dynamic_patch", 1, 1024, &own->tiles.least);
  top.integer("max_dynamic_patch", own->tiles.least, 1024, &own->tiles.most);
  top.flag("use_thumbnail", &own->thumbnail);
  top.flag("dynamic_image_size", &dynamic);
  if (!dynamic) own->tiles = {.least = 1, .most = 1};
}

void parse_transformers(const ConfigFields& top, const ConfigFields& text,
                        const ConfigFields& vision, InternVlFields* own,
                        llama::LlamaConfig* decoder) {
  parse_vision(vision, own);
  // transformers ties the LM head unless a file says otherwise.
  if (text.find("tie_word_embeddings") == nullptr) decoder->tie_embeddings = true;
  top.flag("tie_word_embeddings", &decoder->tie_embeddings);
  top.one_of("projector_hidden_act", known_activations(), &own->activation);
  int64_t layer = -1;
  std::string strategy = "default";
  top.integer("vision_feature_layer", -1, -1, &layer);
  top.one_of("vision_feature_select_strategy", {"default"}, &strategy);
}

/// The original code ends answers at <|im_end|>, regardless of its config.json.
void end_turns(family::ModelConfig* c) {
  constexpr int64_t kTurnEnd = 151645;
  if (c->text.vocab > kTurnEnd && std::ranges::find(c->eos_tokens, kTurnEnd) == c->eos_tokens.end())
    c->eos_tokens.push_back(kTurnEnd);
}

}  // namespace

const InternVlFields& fields(const family::ModelConfig& config) {
  return static_cast<const InternVlFields&>(*config.own);
}

family::ModelConfig parse_internvl(Layout layout, const Json& config, const std::string& where) {
  const ConfigFields top(config, "", where);
  const bool original = layout == Layout::kOriginal;
  family::ModelConfig c;
  c.family = &internvl_family(layout);
  const auto own = std::make_shared<InternVlFields>();
  own->layout = layout;
  top.one_of("model_type", {original ? "internvl_chat" : "internvl"}, &c.model_type);
  const Json nothing = Json::object();
  const auto part = [&](const char* key) {
    return top.find(key) != nullptr ? top.child(key)
                                    : ConfigFields(nothing, std::string(key) + ".", where);
  };
  const ConfigFields text = part(original ? "llm_config" : "text_config");
  c.text = llama::parse_llama_config(text, {"qwen2", "qwen3"});
  c.image_token = original && c.text.model_type == "qwen3" ? 151671 : 151667;
  family::parse_tokens(top, text, &c);
  family::parse_stored_dtype(top, text, &c);
  if (original) {
    parse_original(top, part("vision_config"), own.get());
    end_turns(&c);
  } else {
    parse_transformers(top, text, part("vision_config"), own.get(), &c.text);
  }
  parse_scale(top, own.get());
  c.own = own;
  return c;
}

}  // namespace lft::internvl
