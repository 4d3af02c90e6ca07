#include "models/internvl/config.h"

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

}  // namespace

const InternVlFields& fields(const family::ModelConfig& config) {
  return static_cast<const InternVlFields&>(*config.own);
}

family::ModelConfig parse_internvl(const Json& config, const std::string& where) {
  const ConfigFields top(config, "", where);
  family::ModelConfig c;
  c.family = &internvl_family();
  const auto own = std::make_shared<InternVlFields>();
  c.image_token = 151667;
  top.one_of("model_type", {"internvl"}, &c.model_type);
  const Json nothing = Json::object();
  const auto part = [&](const char* key) {
    return top.find(key) != nullptr ? top.child(key)
                                    : ConfigFields(nothing, std::string(key) + ".", where);
  };
  const ConfigFields text = part("text_config");
  c.text = llama::parse_llama_config(text, {"qwen2", "qwen3"});
  // transformers ties them unless a file says otherwise.
  if (text.find("tie_word_embeddings") == nullptr) c.text.tie_embeddings = true;
  top.flag("tie_word_embeddings", &c.text.tie_embeddings);
  family::parse_tokens(top, text, &c);
  family::parse_stored_dtype(top, text, &c);
  parse_vision(part("vision_config"), own.get());
  parse_scale(top, own.get());
  top.one_of("projector_hidden_act", known_activations(), &own->activation);
  int64_t layer = -1;
  top.integer("vision_feature_layer", -1, -1, &layer);
  std::string strategy = "default";
  top.one_of("vision_feature_select_strategy", {"default"}, &strategy);
  c.own = own;
  return c;
}

}  // namespace lft::internvl
