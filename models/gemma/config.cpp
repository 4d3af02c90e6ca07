#include "models/gemma/config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/gemma/gemma_family.h"

namespace lft::gemma {
namespace {

using Json = nlohmann::json;

void parse_vision(const ConfigFields& vision, GemmaFields* own) {
  std::string model_type = "siglip_vision_model";
  vision.one_of("model_type", {"siglip_vision_model"}, &model_type);
  vision.flag("vision_use_head", &own->vision_head);
  own->vision = clip::parse_clip_config(
      vision, {.patch_size = 16, .layer_norm_eps = 1e-6, .activation = "gelu_pytorch_tanh"});
}

/// Patches of an image are averaged in equal squares.
void parse_positions(const ConfigFields& top, GemmaFields* own) {
  const char* key = "mm_tokens_per_image";
  int64_t positions = 256;
  top.integer(key, 1, kMaxPositions, &positions);
  own->side = std::lround(std::sqrt(static_cast<double>(positions)));
  const int64_t grid = own->vision.grid();
  if (own->side * own->side != positions || own->side > grid || grid % own->side != 0) {
    top.fail(key, std::to_string(positions),
             "the square of a divisor of the " + std::to_string(grid) + " patches of a side");
  }
}

}  // namespace

const GemmaFields& fields(const family::ModelConfig& config) {
  return static_cast<const GemmaFields&>(*config.own);
}

family::ModelConfig parse_gemma(const Json& config, const std::string& where) {
  const ConfigFields top(config, "", where);
  family::ModelConfig c;
  c.family = &gemma_family();
  const auto own = std::make_shared<GemmaFields>();
  c.image_token = 262144;
  c.pad_token = 0;
  c.bos_token = 2;
  c.eos_tokens = {1};
  top.one_of("model_type", {"gemma3"}, &c.model_type);
  const Json nothing = Json::object();
  const auto part = [&](const char* key) {
    return top.find(key) != nullptr ? top.child(key)
                                    : ConfigFields(nothing, std::string(key) + ".", where);
  };
  const ConfigFields text = part("text_config");
  c.text = llama::parse_llama_config(text, {"gemma3_text"});
  c.text.tie_embeddings = true;  // regardless of the text part
  top.flag("tie_word_embeddings", &c.text.tie_embeddings);
  parse_vision(part("vision_config"), own.get());
  parse_positions(top, own.get());
  family::parse_tokens(top, text, &c);
  family::parse_stored_dtype(top, text, &c);
  c.own = own;
  return c;
}

}  // namespace lft::gemma
