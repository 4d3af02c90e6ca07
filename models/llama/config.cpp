#include "models/llama/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "models/llama/default_config.h"

namespace lft::llama {
namespace {

using Json = nlohmann::json;

/// Three numbers of pairs, whose sum is half of the rotated part of a head.
void parse_mrope(const ConfigFields& rope, LlamaConfig* c) {
  const char* key = "mrope_section";
  if (const Json* found = rope.find(key)) {
    if (!found->is_array() || found->size() != 3)
      rope.fail(key, found->dump().substr(0, 80), "3 numbers: of time, height and width");
    for (size_t i = 0; i < 3; ++i)
      c->mrope_section[i] = rope.checked(key, (*found)[i], 0, kMaxHeadDim);
  }
}

void parse_scaling(const ConfigFields& rope, const ConfigFields& text, const LlamaConfig& c,
                   double theta, RopeScaling* to) {
  double share = c.rotary_share;
  rope.number("partial_rotary_factor", 0, 1, &share);
  if (share != c.rotary_share) rope.fail("partial_rotary_factor", Json(share).dump(), "1");
  parse_rope_scaling({.rope = rope,
                      .text = text,
                      .head_dim = c.rotary_dim(),
                      .max_positions = c.max_positions,
                      .theta = theta},
                     to);
}

/// Configs with these scalings may contain the original context length.
void widen_context(LlamaConfig* c) {
  const RopeScaling& scaling = c->rope_scaling;
  if (scaling.type != "dynamic" && scaling.type != "yarn") return;
  const auto context = static_cast<double>(scaling.original_max_positions) * scaling.factor;
  c->max_positions =
      std::max(c->max_positions,
               static_cast<int64_t>(std::min(context, static_cast<double>(kMaxPositions))));
}

/// The rotated part of a head.
void parse_rotary_share(const ConfigFields& fields, LlamaConfig* c) {
  const char* key = "partial_rotary_factor";
  fields.number(key, 0, 1, &c->rotary_share);
  if (c->rotary_dim() < 2 || c->rotary_dim() % 2 != 0)
    fields.fail(key, Json(c->rotary_share).dump(),
                "a share that is an even number of the head's " + std::to_string(c->head_dim));
}

void parse_rope(const ConfigFields& text, LlamaConfig* c) {
  const bool partial = c->rotary_share < 1;  // in the types that have the field
  text.number("rope_theta", 0, 1e15, &c->rope_theta);
  if (partial) text.number("partial_rotary_factor", 0, 1, &c->rotary_share);
  const char* key = text.find("rope_scaling") != nullptr && !text.find("rope_scaling")->empty()
                        ? "rope_scaling"
                        : "rope_parameters";
  if (text.find(key) == nullptr) {
    if (partial) parse_rotary_share(text, c);
    return;
  }
  const ConfigFields rope = text.child(key);
  rope.number("rope_theta", 0, 1e15, &c->rope_theta);
  if (partial) parse_rotary_share(rope, c);
  const bool mrope = !c->mrope_section.empty();
  if (mrope) parse_mrope(rope, c);
  const char* type = rope.find("rope_type") != nullptr ? "rope_type" : "type";
  rope.text(type, &c->rope_scaling.type);
  if (mrope && c->rope_scaling.type == "mrope") {  // only the axes, which were read above
    c->rope_scaling.type = "default";
    return;
  }
  parse_scaling(rope, text, *c, c->rope_theta, &c->rope_scaling);
}

/// Rotary settings of layers with full attention and of those with a window, which are separate
/// objects in new files.
void parse_two_ropes(const ConfigFields& text, LlamaConfig* c) {
  text.number("rope_theta", 0, 1e15, &c->rope_theta);
  text.number("rope_local_base_freq", 0, 1e15, &c->local_rope_theta);
  if (text.find("rope_scaling") != nullptr && !text.find("rope_scaling")->empty()) {
    const ConfigFields scaling = text.child("rope_scaling");
    scaling.text("type", &c->rope_scaling.type);
    parse_scaling(scaling, text, *c, c->rope_theta, &c->rope_scaling);
  }
  if (text.find("rope_parameters") == nullptr) return;
  const ConfigFields both = text.child("rope_parameters");
  for (const char* key : {"rope_type", "rope_theta", "factor"}) {
    if (both.find(key) != nullptr)
      both.fail(key, both.find(key)->dump().substr(0, 80),
                "the same in full_attention and sliding_attention, an object each");
  }
  if (both.find("full_attention") != nullptr) {
    const ConfigFields full = both.child("full_attention");
    full.number("rope_theta", 0, 1e15, &c->rope_theta);
    parse_scaling(full, text, *c, c->rope_theta, &c->rope_scaling);
  }
  if (both.find("sliding_attention") != nullptr) {
    const ConfigFields local = both.child("sliding_attention");
    local.number("rope_theta", 0, 1e15, &c->local_rope_theta);
    parse_scaling(local, text, *c, c->local_rope_theta, &c->local_rope_scaling);
  }
}

/// Sets whether each layer is of the type `other` instead of full_attention, if the file lists
/// them.
void read_layer_types(const ConfigFields& text, const char* other, std::vector<bool>* layers) {
  const char* key = "layer_types";
  const Json* types = text.find(key);
  if (types == nullptr) return;
  if (!types->is_array() || types->size() != layers->size())
    text.fail(key, std::to_string(types->size()) + " entries",
              "one for each of the " + std::to_string(layers->size()) + " layers");
  for (size_t i = 0; i < types->size(); ++i) {
    if ((*types)[i] != other && (*types)[i] != "full_attention")
      text.fail(key, (*types)[i].dump().substr(0, 80), std::string("full_attention or ") + other);
    (*layers)[i] = (*types)[i] == other;
  }
}

constexpr char kSliding[] = "sliding_attention";

/// All layers except every `full_attention_interval`th, if the file does not list them, and their
/// sizes.
void parse_recurrent_layers(const ConfigFields& text, LlamaConfig* c) {
  int64_t interval = 4;
  text.integer("full_attention_interval", 1, kMaxLayers, &interval);
  for (int64_t i = 1; i <= c->layers; ++i) c->recurrent.push_back(i % interval != 0);
  read_layer_types(text, "linear_attention", &c->recurrent);
  if (std::ranges::find(c->recurrent, false) == c->recurrent.end())
    text.fail(text.has("layer_types") ? "layer_types" : "full_attention_interval",
              "no layer with attention", "at least one");
  DeltaConfig& delta = c->delta;
  text.integer("linear_num_key_heads", 1, kMaxHeads, &delta.key_heads);
  text.integer("linear_num_value_heads", 1, kMaxHeads, &delta.value_heads);
  text.integer("linear_key_head_dim", 1, kMaxHeadDim, &delta.key_dim);
  text.integer("linear_value_head_dim", 1, kMaxHeadDim, &delta.value_dim);
  text.integer("linear_conv_kernel_dim", 2, kMaxHeadDim, &delta.kernel);
  if (delta.value_heads % delta.key_heads != 0)
    text.fail("linear_num_value_heads", std::to_string(delta.value_heads),
              "a multiple of linear_num_key_heads " + std::to_string(delta.key_heads));
}

/// Qwen3-VL: every `decoder_sparse_step`th layer, except those of `mlp_only_layers`. Qwen3.5: all.
void parse_sparse_layers(const ConfigFields& text, LlamaConfig* c) {
  int64_t step = 1;
  text.integer("decoder_sparse_step", 1, kMaxLayers, &step);
  for (int64_t i = 1; i <= c->layers; ++i) c->sparse.push_back(i % step == 0);
  const char* key = "mlp_only_layers";
  const Json* dense = text.find(key);
  if (dense == nullptr) return;
  if (!dense->is_array()) text.fail(key, dense->dump().substr(0, 80), "numbers of layers");
  for (const Json& layer : *dense) {
    const auto index = static_cast<size_t>(text.checked(key, layer, 0, kMaxLayers));
    if (index < c->sparse.size()) c->sparse[index] = false;
  }
}

void parse_experts(const ConfigFields& text, const std::string& type, LlamaConfig* c) {
  ExpertConfig& experts = c->experts;
  const char* count = text.has("num_local_experts") ? "num_local_experts" : "num_experts";
  text.integer(count, 1, kMaxExperts, &experts.count);
  text.integer("num_experts_per_tok", 1, kMaxExperts, &experts.per_token);
  if (experts.per_token > experts.count)
    text.fail("num_experts_per_tok", std::to_string(experts.per_token),
              std::string("at most ") + count + " " + std::to_string(experts.count));
  text.integer("moe_intermediate_size", 1, kMaxIntermediate, &experts.intermediate);
  text.flag("output_router_logits", &experts.balances);
  text.number("router_aux_loss_coef", -1, 1e6, &experts.balance_coefficient);
  if (type == "qwen3_5_moe_text") {
    text.integer("shared_expert_intermediate_size", 1, kMaxIntermediate,
                 &experts.shared_intermediate);
    c->sparse.assign(static_cast<size_t>(c->layers), true);
  } else {
    parse_sparse_layers(text, c);
  }
}

bool any_slides(const LlamaConfig& c) {
  return std::ranges::find(c.slides, true) != c.slides.end();
}

/// Gemma: all layers except every `sliding_window_pattern`th, if the file does not list them.
void parse_sliding_layers(const ConfigFields& text, LlamaConfig* c) {
  int64_t pattern = 6;
  text.integer("sliding_window_pattern", 1, kMaxLayers, &pattern);
  for (int64_t i = 1; i <= c->layers; ++i) c->slides.push_back(i % pattern != 0);
  read_layer_types(text, kSliding, &c->slides);
  if (any_slides(*c) && text.has("sliding_window") && text.find("sliding_window") == nullptr)
    text.fail("sliding_window", "null", "a number of positions, as layers have a window");
  text.integer("sliding_window", 1, kMaxPositions, &c->window);
}

void parse_gemma3(const ConfigFields& text, LlamaConfig* c) {
  text.one_of("hidden_activation", {c->activation}, &c->activation);
  text.number("query_pre_attn_scalar", 0, 1e6, &c->query_scalar);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (const Json* cap = text.find(key))
      text.fail(key, cap->dump().substr(0, 80),
                "null: transformers' Gemma 3 with images caps no logits");
  }
  bool both_ways = false;
  text.flag("use_bidirectional_attention", &both_ways);
  if (both_ways)
    text.fail("use_bidirectional_attention", "true", "false: a text that sees what follows");
  parse_sliding_layers(text, c);
}

/// In Mistral all layers have a window; in Qwen2 and Qwen3 those from max_window_layers on, if the
/// file enables it. Their rotary angles are those of the other layers. A window as long as the
/// context has no effect.
void parse_window(const ConfigFields& text, const std::string& type, LlamaConfig* c) {
  const char* key = "sliding_window";
  const bool qwen = type.starts_with("qwen2") || type == "qwen3";
  bool slides = type == "mistral";
  if (qwen) text.flag("use_sliding_window", &slides);
  if (!slides || (text.has(key) && text.find(key) == nullptr)) return;
  int64_t window = 4096, first = type == "qwen2" || type == "qwen3" ? 28 : qwen ? 80 : 0;
  text.integer(key, 1, kMaxPositions, &window);
  if (qwen) text.integer("max_window_layers", 0, kMaxPositions, &first);
  for (int64_t i = 0; i < c->layers; ++i) c->slides.push_back(i >= first);
  if (qwen) read_layer_types(text, kSliding, &c->slides);
  if (window >= c->max_positions || !any_slides(*c)) {
    c->slides.clear();
    return;
  }
  c->window = window;
  c->local_rope_theta = c->rope_theta;
  c->local_rope_scaling = c->rope_scaling;
}

void parse_heads(const ConfigFields& text, const std::string& type, LlamaConfig* c) {
  text.integer("num_attention_heads", 1, kMaxHeads, &c->heads);
  if (text.has("head_dim")) c->head_dim = 0;
  const bool divides = c->hidden % c->heads == 0;
  const bool given = (type == "mistral" || type.starts_with("qwen3") || type == "gemma3_text") &&
                     (c->head_dim > 0 || text.find("head_dim") != nullptr);
  if (!divides && !given)
    text.fail("num_attention_heads", std::to_string(c->heads),
              "a divisor of hidden_size " + std::to_string(c->hidden));
  if (text.has("num_key_value_heads") || c->kv_heads == 0) c->kv_heads = c->heads;
  text.integer("num_key_value_heads", 1, c->heads, &c->kv_heads);
  if (c->heads % c->kv_heads != 0)
    text.fail("num_key_value_heads", std::to_string(c->kv_heads),
              "a divisor of num_attention_heads " + std::to_string(c->heads));
  if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
  text.integer("head_dim", 2, kMaxHeadDim, &c->head_dim);
  if (type.starts_with("qwen2_") && c->head_dim != c->hidden / c->heads)
    text.fail("head_dim", std::to_string(c->head_dim),
              "hidden_size / num_attention_heads, which the model uses regardless of this field");
  if (c->head_dim % 2 != 0 || c->head_dim > kMaxHeadDim) {
    text.fail(
        "head_dim", std::to_string(c->head_dim),
        "an even number up to " + std::to_string(kMaxHeadDim) + " (rotary positions turn pairs)");
  }
}

void check_mrope(const ConfigFields& text, const LlamaConfig& c) {
  if (c.mrope_section.empty() || c.mrope_interleaved) return;
  int64_t pairs = 0;
  for (const int64_t count : c.mrope_section) pairs += count;
  if (pairs != c.head_dim / 2) {
    text.fail("rope_scaling.mrope_section", Json(c.mrope_section).dump(),
              "3 numbers whose sum is half of the head size " + std::to_string(c.head_dim));
  }
}

}  // namespace

LlamaConfig parse_llama_config(const ConfigFields& text, const std::vector<std::string>& types) {
  std::string type = types.front(), activation = "silu";
  text.one_of("model_type", types, &type);
  LlamaConfig c = default_config(type);
  c.model_type = type;
  const bool gemma3 = type == "gemma3_text";
  if (!gemma3) text.one_of("hidden_act", {"silu", "swish"}, &activation);
  text.integer("hidden_size", 1, kMaxHidden, &c.hidden);
  text.integer("intermediate_size", 1, kMaxIntermediate, &c.intermediate);
  text.integer("num_hidden_layers", 1, kMaxLayers, &c.layers);
  text.integer("vocab_size", 1, kMaxVocab, &c.vocab);
  text.integer("max_position_embeddings", 1, kMaxPositions, &c.max_positions);
  parse_heads(text, type, &c);
  text.number("rms_norm_eps", 0, 1, &c.rms_norm_eps);
  if (type == "llama" || type.starts_with("qwen3") || gemma3)
    text.flag("attention_bias", &c.attention_bias);
  if (type == "llama") text.flag("mlp_bias", &c.mlp_bias);
  text.flag("tie_word_embeddings", &c.tie_embeddings);
  if (gemma3) {
    parse_two_ropes(text, &c);
    parse_gemma3(text, &c);
  } else {
    parse_rope(text, &c);
  }
  widen_context(&c);
  check_mrope(text, c);
  if (!gemma3) parse_window(text, type, &c);
  if (type.starts_with("qwen3_5_")) parse_recurrent_layers(text, &c);
  if (c.experts.count > 0) parse_experts(text, type, &c);
  return c;
}

}  // namespace lft::llama
