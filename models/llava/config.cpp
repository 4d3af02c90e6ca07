#include "models/llava/config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/ops/activation.h"

namespace lft {
namespace {

using Json = nlohmann::json;

/// One JSON object of the file with the path that leads to it; every getter names the field it refuses.
class Fields {
 public:
  Fields(const Json& object, std::string prefix, const std::string& file) : object_(object), prefix_(std::move(prefix)), file_(file) {
    if (!object.is_object()) fail("", object.dump(), "an object");
  }

  /// The value, or nullptr where the key is absent or null.
  const Json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  void integer(const char* key, int64_t low, int64_t high, int64_t* value) const {
    if (const Json* found = find(key)) *value = checked(key, *found, low, high);
  }
  int64_t checked(const char* key, const Json& found, int64_t low, int64_t high) const {
    const bool fits = found.is_number_unsigned() ? found.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX) : found.is_number_integer();
    if (!fits || found.get<int64_t>() < low || found.get<int64_t>() > high) {
      fail(key, shown(found), "a whole number in [" + std::to_string(low) + ", " + std::to_string(high) + "]");
    }
    return found.get<int64_t>();
  }
  /// A finite number in (above, high].
  void number(const char* key, double above, double high, double* value) const {
    const Json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_number() || !std::isfinite(found->get<double>()) || found->get<double>() <= above || found->get<double>() > high) {
      fail(key, shown(*found), "a number above " + Json(above).dump() + " and at most " + Json(high).dump());
    }
    *value = found->get<double>();
  }
  void flag(const char* key, bool* value) const {
    const Json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) fail(key, shown(*found), "true or false");
    *value = found->get<bool>();
  }
  void text(const char* key, std::string* value) const {
    const Json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_string()) fail(key, shown(*found), "a string");
    *value = found->get<std::string>();
  }
  void one_of(const char* key, std::vector<std::string> allowed, std::string* value) const {
    text(key, value);
    std::string list;
    for (const std::string& name : allowed) {
      if (*value == name) return;
      list += (list.empty() ? "" : ", ") + name;
    }
    fail(key, *value, "one of " + list);
  }
  /// A side length: a whole number, or two equal ones.
  void square(const char* key, int64_t low, int64_t high, int64_t* value) const {
    const Json* found = find(key);
    if (found == nullptr) return;
    const bool pair = found->is_array() && found->size() == 2 && (*found)[0] == (*found)[1];
    *value = checked(key, pair ? (*found)[0] : *found, low, high);
  }
  Fields child(const char* key) const { return Fields(*find(key), prefix_ + key + ".", file_); }
  [[noreturn]] void fail(const std::string& key, const std::string& found, const std::string& expected) const {
    throw Error(ErrorKind::kInput, {.what = "config.json: " + prefix_ + key + " cannot be used",
                                    .where = file_ + ": " + prefix_ + key,
                                    .found = found,
                                    .expected = expected,
                                    .next = "take a LLaVA model of that kind; where config.json was edited, undo that"});
  }

 private:
  static std::string shown(const Json& value) {
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= 80 ? text : text.substr(0, 80) + "...";
  }
  const Json& object_;
  std::string prefix_;
  const std::string& file_;
};

const std::vector<std::string> kActivations = {"gelu", "quick_gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"};
constexpr int64_t kMaxHidden = 1 << 16, kMaxIntermediate = 1 << 20, kMaxLayers = 1024, kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024, kMaxVocab = 1 << 22, kMaxPositions = 1 << 24, kMaxSide = 1 << 14;

void parse_rope(const Fields& text, LlamaConfig* c) {
  text.number("rope_theta", 0, 1e15, &c->rope_theta);
  const char* key = text.find("rope_scaling") != nullptr && !text.find("rope_scaling")->empty() ? "rope_scaling" : "rope_parameters";
  if (text.find(key) == nullptr) return;
  const Fields rope = text.child(key);
  RopeScaling& scaling = c->rope_scaling;
  rope.number("rope_theta", 0, 1e15, &c->rope_theta);
  rope.text("type", &scaling.type);
  rope.one_of("rope_type", {"default", "linear", "llama3"}, &scaling.type);
  double rotary = 1;
  rope.number("partial_rotary_factor", 0, 1, &rotary);
  if (rotary != 1) rope.fail("partial_rotary_factor", Json(rotary).dump(), "1");
  if (scaling.type == "default") return;
  std::vector<const char*> required = {"factor"};
  if (scaling.type == "llama3") required = {"factor", "low_freq_factor", "high_freq_factor"};
  for (const char* name : required) {
    if (rope.find(name) == nullptr) rope.fail(name, "nothing", "a number, as rope type " + scaling.type + " needs it");
  }
  rope.number("factor", 0, 1e6, &scaling.factor);
  rope.number("low_freq_factor", 0, 1e6, &scaling.low_freq_factor);
  rope.number("high_freq_factor", 0, 1e6, &scaling.high_freq_factor);
  scaling.original_max_positions = c->max_positions;
  rope.integer("original_max_position_embeddings", 1, kMaxPositions, &scaling.original_max_positions);
  if (scaling.type == "llama3" && scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.fail("high_freq_factor", Json(scaling.high_freq_factor).dump(), "more than low_freq_factor");
  }
}

void parse_text(const Fields& text, LlamaConfig* c) {
  std::string model_type = "llama", activation = "silu";
  text.one_of("model_type", {"llama"}, &model_type);
  text.one_of("hidden_act", {"silu", "swish"}, &activation);
  text.integer("hidden_size", 1, kMaxHidden, &c->hidden);
  text.integer("intermediate_size", 1, kMaxIntermediate, &c->intermediate);
  text.integer("num_hidden_layers", 1, kMaxLayers, &c->layers);
  text.integer("num_attention_heads", 1, kMaxHeads, &c->heads);
  text.integer("vocab_size", 1, kMaxVocab, &c->vocab);
  text.integer("max_position_embeddings", 1, kMaxPositions, &c->max_positions);
  if (c->hidden % c->heads != 0)
    text.fail("num_attention_heads", std::to_string(c->heads), "a divisor of hidden_size " + std::to_string(c->hidden));
  c->kv_heads = c->heads;
  text.integer("num_key_value_heads", 1, c->heads, &c->kv_heads);
  if (c->heads % c->kv_heads != 0)
    text.fail("num_key_value_heads", std::to_string(c->kv_heads), "a divisor of num_attention_heads " + std::to_string(c->heads));
  c->head_dim = c->hidden / c->heads;
  text.integer("head_dim", 2, kMaxHeadDim, &c->head_dim);
  if (c->head_dim % 2 != 0 || c->head_dim > kMaxHeadDim) {
    text.fail("head_dim", std::to_string(c->head_dim),
              "an even number up to " + std::to_string(kMaxHeadDim) + " (rotary positions turn pairs)");
  }
  text.number("rms_norm_eps", 0, 1, &c->rms_norm_eps);
  text.flag("attention_bias", &c->attention_bias);
  text.flag("mlp_bias", &c->mlp_bias);
  text.flag("tie_word_embeddings", &c->tie_embeddings);
  parse_rope(text, c);
}

void parse_vision(const Fields& vision, ClipConfig* c) {
  std::string model_type = "clip_vision_model";
  vision.one_of("model_type", {"clip_vision_model"}, &model_type);
  vision.one_of("hidden_act", kActivations, &c->activation);
  vision.integer("hidden_size", 1, kMaxHidden, &c->hidden);
  vision.integer("intermediate_size", 1, kMaxIntermediate, &c->intermediate);
  vision.integer("num_hidden_layers", 1, kMaxLayers, &c->layers);
  vision.integer("num_attention_heads", 1, kMaxHeads, &c->heads);
  vision.integer("num_channels", 3, 3, &c->channels);
  vision.square("image_size", 1, kMaxSide, &c->image_size);
  vision.square("patch_size", 1, kMaxSide, &c->patch_size);
  vision.number("layer_norm_eps", 0, 1, &c->layer_norm_eps);
  if (c->hidden % c->heads != 0)
    vision.fail("num_attention_heads", std::to_string(c->heads), "a divisor of hidden_size " + std::to_string(c->hidden));
  if (c->patch_size > c->image_size)
    vision.fail("patch_size", std::to_string(c->patch_size), "at most image_size " + std::to_string(c->image_size));
}

void parse_feature_layers(const Fields& top, LlavaConfig* c) {
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
    if (layer < low) top.fail(key, std::to_string(layer), "a layer the vision tower has (" + std::to_string(c->vision.layers) + " layers)");
  }
}

void parse_tokens(const Fields& top, const Fields& text, LlavaConfig* c) {
  // It may lie beyond the vocabulary: its embedding is never looked up.
  top.integer("image_token_id", 0, kMaxVocab, &c->image_token);
  top.integer("image_token_index", 0, kMaxVocab, &c->image_token);
  // -1 is how some files say "none".
  for (const Fields* fields : {&text, &top}) {
    fields->integer("pad_token_id", -1, kMaxVocab, &c->pad_token);
    fields->integer("bos_token_id", -1, kMaxVocab, &c->bos_token);
  }
  const Fields& with_eos = text.find("eos_token_id") != nullptr ? text : top;
  const Json* eos = with_eos.find("eos_token_id");
  if (eos == nullptr) return;
  c->eos_tokens.clear();
  if (eos->is_array() && eos->size() > 64) with_eos.fail("eos_token_id", std::to_string(eos->size()) + " ids", "up to 64 ids");
  for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
    const int64_t token = with_eos.checked("eos_token_id", id, -1, kMaxVocab);
    if (token >= 0) c->eos_tokens.push_back(token);
  }
}

void parse_dtype(const Fields& top, const Fields& text, LlavaConfig* c) {
  for (const Fields* fields : {&text, &top}) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      if (fields->find(key) == nullptr) continue;
      fields->text(key, &c->stored_dtype);
      if (c->stored_dtype.starts_with("torch.")) c->stored_dtype.erase(0, 6);
      if (c->stored_dtype != "float32" && c->stored_dtype != "float16" && c->stored_dtype != "bfloat16") {
        fields->fail(key, c->stored_dtype, "float32, float16 or bfloat16");
      }
    }
  }
}

}  // namespace

LlavaConfig LlavaConfig::parse(const Json& config, const std::string& where) {
  const Fields top(config, "", where);
  LlavaConfig c;
  std::string model_type;
  top.one_of("model_type", {"llava"}, &model_type);
  const Json nothing = Json::object();
  const bool has_text = top.find("text_config") != nullptr, has_vision = top.find("vision_config") != nullptr;
  const Fields text = has_text ? top.child("text_config") : Fields(nothing, "text_config.", where);
  parse_text(text, &c.text);
  if (has_vision) {
    parse_vision(top.child("vision_config"), &c.vision);
  } else {  // ViT-L/14 at 336 pixels, as transformers fills it in
    c.vision = {.hidden = 1024, .intermediate = 4096, .layers = 24, .heads = 16, .image_size = 336, .patch_size = 14};
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
  top.one_of("projector_hidden_act", kActivations, &c.projector_activation);
  return c;
}

}  // namespace lft
