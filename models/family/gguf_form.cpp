#include "models/family/gguf_form.h"

#include <array>

namespace lft::family {
namespace {

uint32_t whole(int64_t value) { return static_cast<uint32_t>(value); }

/// Of a decoder layer, and how many heads' rows are turned: 0 none, 1 the queries', 2 the keys'.
struct LayerName {
  const char *canonical, *name;
  int turned = 0;
};
constexpr std::array<LayerName, 11> kLayerNames = {{{"input_layernorm", "attn_norm"},
                                                    {"self_attn.q_proj", "attn_q", 1},
                                                    {"self_attn.k_proj", "attn_k", 2},
                                                    {"self_attn.v_proj", "attn_v"},
                                                    {"self_attn.o_proj", "attn_output"},
                                                    {"self_attn.q_norm", "attn_q_norm"},
                                                    {"self_attn.k_norm", "attn_k_norm"},
                                                    {"post_attention_layernorm", "ffn_norm"},
                                                    {"mlp.gate_proj", "ffn_gate"},
                                                    {"mlp.up_proj", "ffn_up"},
                                                    {"mlp.down_proj", "ffn_down"}}};

bool has_bias(const llama::LlamaConfig& c, const std::string& module) {
  if (module.starts_with("mlp.")) return c.mlp_bias;
  if (module == "self_attn.o_proj") return c.attention_bias;
  return module.ends_with("_proj") && c.has_qkv_bias();
}

void add_keys(const llama::LlamaConfig& c, GgufForm* form) {
  const std::string root = form->architecture + ".";
  const auto add = [&](const char* key, GgufValue value) {
    form->text.emplace_back(root + key, std::move(value));
  };
  add("block_count", whole(c.layers));
  add("context_length", whole(c.max_positions));
  add("embedding_length", whole(c.hidden));
  add("feed_forward_length", whole(c.intermediate));
  add("attention.head_count", whole(c.heads));
  add("attention.head_count_kv", whole(c.kv_heads));
  add("attention.key_length", whole(c.head_dim));
  add("attention.value_length", whole(c.head_dim));
  add("attention.layer_norm_rms_epsilon", static_cast<float>(c.rms_norm_eps));
  add("rope.freq_base", static_cast<float>(c.rope_theta));
  add("rope.dimension_count", whole(c.head_dim));
  add("vocab_size", whole(c.vocab));
  if (c.mrope_section.empty()) return;
  std::vector<int32_t> sections(c.mrope_section.begin(), c.mrope_section.end());
  sections.resize(4);
  add("rope.dimension_sections", sections);
}

}  // namespace

void add_gguf_decoder(const llama::LlamaConfig& c, bool turned, GgufForm* form) {
  add_keys(c, form);
  const std::string root = "language_model.model.";
  auto& tensors = form->text_tensors;
  tensors.push_back({.name = "token_embd.weight", .canonical = root + "embed_tokens.weight"});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string from = root + "layers." + std::to_string(i) + ".",
                      to = "blk." + std::to_string(i) + ".";
    for (const LayerName& layer : kLayerNames) {
      const std::string module = layer.canonical;
      if (!c.qk_norm && (module.ends_with("q_norm") || module.ends_with("k_norm"))) continue;
      for (const char* end : {".weight", ".bias"}) {
        if (end == std::string(".bias") && !has_bias(c, module)) continue;
        GgufTensor tensor{.name = to + layer.name + end, .canonical = from + module + end};
        if (turned && layer.turned > 0) {
          tensor.make = GgufTensor::Make::kTurned;
          tensor.count = layer.turned == 1 ? c.heads : c.kv_heads;
        }
        tensors.push_back(tensor);
      }
    }
  }
  tensors.push_back({.name = "output_norm.weight", .canonical = root + "norm.weight"});
  if (!c.tie_embeddings)
    tensors.push_back({.name = "output.weight", .canonical = "language_model.lm_head.weight"});
}

void add_gguf_vision(const GgufVision& v, GgufForm* form) {
  const auto add = [&](const char* key, GgufValue value) {
    form->vision.emplace_back(key, std::move(value));
  };
  add("clip.has_vision_encoder", true);
  add("clip.projector_type", v.projector);
  add("clip.vision.projection_dim", whole(v.text_hidden));
  add("clip.vision.image_size", whole(v.image_size));
  add("clip.vision.patch_size", whole(v.patch));
  add("clip.vision.embedding_length", whole(v.hidden));
  add("clip.vision.feed_forward_length", whole(v.inner));
  add("clip.vision.block_count", whole(v.blocks));
  add("clip.vision.attention.head_count", whole(v.heads));
  add("clip.vision.attention.layer_norm_epsilon", static_cast<float>(v.eps));
}

}  // namespace lft::family
