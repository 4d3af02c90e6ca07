#include "models/smolvlm/config.h"

#include <nlohmann/json.hpp>

#include "models/smolvlm/smolvlm_family.h"

namespace lft::smolvlm {
namespace {

using Json = nlohmann::json;

clip::ClipConfig parse_vision(const ConfigFields& vision) {
  std::string model_type = "smolvlm_vision";
  vision.one_of("model_type", {"smolvlm_vision", "idefics3_vision", "smolvlm", "idefics3"},
                &model_type);
  return clip::parse_clip_config(vision, {.hidden = 1152,
                                          .intermediate = 3072,
                                          .layers = 12,
                                          .heads = 16,
                                          .image_size = 224,
                                          .patch_size = 32,
                                          .layer_norm_eps = 1e-6,
                                          .activation = "gelu_pytorch_tanh"});
}

}  // namespace

const SmolVlmFields& fields(const family::ModelConfig& config) {
  return static_cast<const SmolVlmFields&>(*config.own);
}

family::ModelConfig parse_smolvlm(const Json& config, const std::string& where) {
  const ConfigFields top(config, "", where);
  family::ModelConfig c;
  c.family = &smolvlm_family();
  const auto own = std::make_shared<SmolVlmFields>();
  c.image_token = 128257;
  top.one_of("model_type", {"smolvlm", "idefics3"}, &c.model_type);
  const Json nothing = Json::object();
  const auto part = [&](const char* key) {
    return top.find(key) != nullptr ? top.child(key)
                                    : ConfigFields(nothing, std::string(key) + ".", where);
  };
  const ConfigFields text = part("text_config");
  c.text = llama::parse_llama_config(text);
  own->vision = parse_vision(part("vision_config"));
  bool tied = false;
  top.flag("tie_word_embeddings", &tied);
  c.text.tie_embeddings = c.text.tie_embeddings || tied;
  family::parse_tokens(top, text, &c);
  family::parse_stored_dtype(top, text, &c);
  top.integer("scale_factor", 1, 64, &own->scale);
  if (own->vision.grid() % own->scale != 0)
    top.fail(
        "scale_factor", std::to_string(own->scale),
        "a divisor of the " + std::to_string(own->vision.grid()) + " patches of a tile's side");
  c.own = own;
  return c;
}

}  // namespace lft::smolvlm
