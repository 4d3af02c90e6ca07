#include "models/llama/config.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace lft::llama {
namespace {

using Json = nlohmann::json;

void parse_rope(const ConfigFields& text, LlamaConfig* c) {
  text.number("rope_theta", 0, 1e15, &c->rope_theta);
  const char* key = text.find("rope_scaling") != nullptr && !text.find("rope_scaling")->empty()
                        ? "rope_scaling"
                        : "rope_parameters";
  if (text.find(key) == nullptr) return;
  const ConfigFields rope = text.child(key);
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
    if (rope.find(name) == nullptr)
      rope.fail(name, "nothing", "a number, as rope type " + scaling.type + " needs it");
  }
  rope.number("factor", 0, 1e6, &scaling.factor);
  rope.number("low_freq_factor", 0, 1e6, &scaling.low_freq_factor);
  rope.number("high_freq_factor", 0, 1e6, &scaling.high_freq_factor);
  scaling.original_max_positions = c->max_positions;
  rope.integer("original_max_position_embeddings", 1, kMaxPositions,
               &scaling.original_max_positions);
  if (scaling.type == "llama3" && scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.fail("high_freq_factor", Json(scaling.high_freq_factor).dump(),
              "more than low_freq_factor");
  }
}

}  // namespace

LlamaConfig parse_llama_config(const ConfigFields& text) {
  LlamaConfig c;
  std::string model_type = "llama", activation = "silu";
  text.one_of("model_type", {"llama"}, &model_type);
  text.one_of("hidden_act", {"silu", "swish"}, &activation);
  text.integer("hidden_size", 1, kMaxHidden, &c.hidden);
  text.integer("intermediate_size", 1, kMaxIntermediate, &c.intermediate);
  text.integer("num_hidden_layers", 1, kMaxLayers, &c.layers);
  text.integer("num_attention_heads", 1, kMaxHeads, &c.heads);
  text.integer("vocab_size", 1, kMaxVocab, &c.vocab);
  text.integer("max_position_embeddings", 1, kMaxPositions, &c.max_positions);
  if (c.hidden % c.heads != 0)
    text.fail("num_attention_heads", std::to_string(c.heads),
              "a divisor of hidden_size " + std::to_string(c.hidden));
  c.kv_heads = c.heads;
  text.integer("num_key_value_heads", 1, c.heads, &c.kv_heads);
  if (c.heads % c.kv_heads != 0)
    text.fail("num_key_value_heads", std::to_string(c.kv_heads),
              "a divisor of num_attention_heads " + std::to_string(c.heads));
  c.head_dim = c.hidden / c.heads;
  text.integer("head_dim", 2, kMaxHeadDim, &c.head_dim);
  if (c.head_dim % 2 != 0 || c.head_dim > kMaxHeadDim) {
    text.fail(
        "head_dim", std::to_string(c.head_dim),
        "an even number up to " + std::to_string(kMaxHeadDim) + " (rotary positions turn pairs)");
  }
  text.number("rms_norm_eps", 0, 1, &c.rms_norm_eps);
  text.flag("attention_bias", &c.attention_bias);
  text.flag("mlp_bias", &c.mlp_bias);
  text.flag("tie_word_embeddings", &c.tie_embeddings);
  parse_rope(text, &c);
  return c;
}

}  // namespace lft::llama
