#include "models/llava/config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "models/llava/anyres.h"
#include "models/llava/llava_family.h"

namespace lft::llava {
namespace {

using Json = nlohmann::json;

/// The defaults of transformers for absent fields.
std::vector<image::Size> default_canvases(Kind kind) {
  if (kind == Kind::kNext) return {{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}};
  std::vector<image::Size> all;
  for (int64_t height = 384; height <= 2304; height += 384) {
    for (int64_t width = 384; width <= 2304; width += 384) all.push_back({width, height});
  }
  return all;
}

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

const char* model_type_of(Kind kind) {
  switch (kind) {
    case Kind::kNext:
      return "llava_next";
    case Kind::kOneVision:
      return "llava_onevision";
    default:
      return "llava";
  }
}

void parse_tower(const ConfigFields& vision, LlavaFields* c) {
  std::string type = c->kind == Kind::kOneVision ? "siglip_vision_model" : "clip_vision_model";
  vision.one_of("model_type", {"clip_vision_model", "siglip_vision_model"}, &type);
  c->siglip = type == "siglip_vision_model";
  clip::ClipConfig silent;
  if (c->siglip) {
    silent.patch_size = 16;
    silent.layer_norm_eps = 1e-6;
    silent.activation = "gelu_pytorch_tanh";
    c->siglip_head = true;
    vision.flag("vision_use_head", &c->siglip_head);
  }
  c->vision = clip::parse_clip_config(vision, silent);
}

/// "default" drops the first position, which is CLIP's class position but a patch in SigLIP; tiles
/// are joined patch by patch.
void check_strategy(const ConfigFields& top, const LlavaFields& c, const std::string& strategy) {
  const char* key = "vision_feature_select_strategy";
  if (c.siglip && !c.select_full)
    top.fail(key, strategy, "full: a SigLIP tower has no class position to drop");
  if (!c.siglip && c.select_full && c.kind != Kind::kLlava)
    top.fail(key, strategy, "default: without the class position, as tiles are joined by patches");
}

void parse_canvases(const ConfigFields& top, LlavaFields* c) {
  const char* key = "image_grid_pinpoints";
  const int64_t tile = c->vision.image_size;
  const Json* found = top.find(key);
  if (found == nullptr) {
    c->canvases = default_canvases(c->kind);
  } else {
    if (!found->is_array() || found->empty() || found->size() > 256)
      top.fail(key, found->dump().substr(0, 80), "1 to 256 pairs of a height and a width");
    for (const Json& one : *found) {
      if (!one.is_array() || one.size() != 2)
        top.fail(key, one.dump().substr(0, 80), "a pair of a height and a width");
      c->canvases.push_back({.width = top.checked(key, one[1], 1, kMaxSide),
                             .height = top.checked(key, one[0], 1, kMaxSide)});
    }
  }
  for (const image::Size& canvas : c->canvases) {
    if (canvas.width % tile == 0 && canvas.height % tile == 0) continue;
    top.fail(key, std::to_string(canvas.height) + " x " + std::to_string(canvas.width),
             "whole tiles of vision_config.image_size " + std::to_string(tile));
  }
}

void parse_most_tiles(const ConfigFields& top, LlavaFields* c) {
  const char* key = "vision_aspect_ratio";
  std::string text = "anyres_max_9";
  top.text(key, &text);
  const std::string_view head = "anyres_max_";
  const char* begin = text.data() + std::min(text.size(), head.size());
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(begin, end, c->most_tiles);
  if (!text.starts_with(head) || error != std::errc() || after != end || c->most_tiles < 1 ||
      c->most_tiles > 1000)
    top.fail(key, text, "anyres_max_N of 1 to 1000");
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

int64_t LlavaFields::image_positions(const family::ImageShape& image) const {
  if (kind == Kind::kLlava) return tile_positions();
  if (image.rows == 0) return tile_positions() + 1;  // plus the end of its line
  const image::Size all{image.columns * vision.grid(), image.rows * vision.grid()};
  const Window own = covered_positions(image.source, all);
  const image::Size kept = shrunk_positions({own.width, own.height}, vision.grid(), most_tiles);
  return tile_positions() + kept.height * (kept.width + 1);
}

family::ModelConfig parse_llava(const Json& config, const std::string& where, Kind kind) {
  const ConfigFields top(config, "", where);
  family::ModelConfig c;
  c.family = &llava_family(kind);
  const auto own = std::make_shared<LlavaFields>();
  own->kind = kind;
  const bool one_vision = kind == Kind::kOneVision;
  c.image_token = one_vision ? 151646 : 32000;
  top.one_of("model_type", {model_type_of(kind)}, &c.model_type);
  const Json nothing = Json::object();
  const bool has_text = top.find("text_config") != nullptr,
             has_vision = top.find("vision_config") != nullptr;
  const ConfigFields text =
      has_text ? top.child("text_config") : ConfigFields(nothing, "text_config.", where);
  c.text = llama::parse_llama_config(
      text, one_vision ? std::vector<std::string>{"qwen2", "llama", "mistral"}
                       : std::vector<std::string>{"llama", "mistral", "qwen2"});
  if (has_vision) {
    parse_tower(top.child("vision_config"), own.get());
  } else if (one_vision) {  // default of transformers: SigLIP-400M at 384 pixels
    own->siglip = true;
    own->vision = {.hidden = 1152,
                   .intermediate = 4304,
                   .layers = 26,
                   .heads = 16,
                   .image_size = 384,
                   .patch_size = 14,
                   .layer_norm_eps = 1e-6,
                   .activation = "gelu_pytorch_tanh"};
  } else {  // ViT-L/14 at 336 pixels
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
  if (one_vision) own->vision_feature_layers = {-1};
  parse_feature_layers(top, own.get());
  family::parse_tokens(top, text, &c);
  family::parse_stored_dtype(top, text, &c);
  std::string strategy = one_vision ? "full" : "default";
  top.one_of("vision_feature_select_strategy", {"default", "full"}, &strategy);
  own->select_full = strategy == "full";
  check_strategy(top, *own, strategy);
  if (kind != Kind::kLlava) parse_canvases(top, own.get());
  if (one_vision) parse_most_tiles(top, own.get());
  top.flag("multimodal_projector_bias", &own->projector_bias);
  top.one_of("projector_hidden_act", known_activations(), &own->projector_activation);
  c.own = own;
  return c;
}

}  // namespace lft::llava
