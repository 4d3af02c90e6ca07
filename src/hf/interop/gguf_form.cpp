#include "src/hf/interop/gguf_form.h"

#include <array>

namespace lft::hf {
namespace {

uint32_t gguf_count(int64_t value) { return static_cast<uint32_t>(value); }

enum class GgufHeads { kNone, kQueries, kKeys };
/// A module of a decoder layer, and the heads whose rows llama.cpp's rotary embedding interleaves.
struct GgufLayerName {
  const char *canonical, *name;
  GgufHeads heads = GgufHeads::kNone;
};
constexpr std::array<GgufLayerName, 11> kLayerNames = {
    {{"input_layernorm", "attn_norm"},
     {"self_attn.q_proj", "attn_q", GgufHeads::kQueries},
     {"self_attn.k_proj", "attn_k", GgufHeads::kKeys},
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
  const auto add = [&](const char* key, io::GgufValue value) {
    form->text.emplace_back(root + key, std::move(value));
  };
  add("block_count", gguf_count(c.layers));
  add("context_length", gguf_count(c.max_positions));
  add("embedding_length", gguf_count(c.hidden));
  add("feed_forward_length", gguf_count(c.intermediate));
  add("attention.head_count", gguf_count(c.heads));
  add("attention.head_count_kv", gguf_count(c.kv_heads));
  add("attention.key_length", gguf_count(c.head_dim));
  add("attention.value_length", gguf_count(c.head_dim));
  add("attention.layer_norm_rms_epsilon", static_cast<float>(c.rms_norm_eps));
  add("rope.freq_base", static_cast<float>(c.rope_theta));
  add("rope.dimension_count", gguf_count(c.head_dim));
  add("vocab_size", gguf_count(c.vocab));
  if (c.mrope_section.empty()) return;
  std::vector<int32_t> sections(c.mrope_section.begin(), c.mrope_section.end());
  sections.resize(4);
  add("rope.dimension_sections", sections);
}

}  // namespace

void add_gguf_decoder(const llama::LlamaConfig& c, bool interleaved, GgufForm* form) {
  add_keys(c, form);
  const std::string root = "language_model.model.";
  auto& tensors = form->text_tensors;
  tensors.push_back({.name = "token_embd.weight", .canonical = root + "embed_tokens.weight"});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string from = root + "layers." + std::to_string(i) + ".",
                      to = "blk." + std::to_string(i) + ".";
    for (const GgufLayerName& layer : kLayerNames) {
      const std::string module = layer.canonical;
      if (!c.qk_norm && (module.ends_with("q_norm") || module.ends_with("k_norm"))) continue;
      for (const char* end : {".weight", ".bias"}) {
        if (end == std::string(".bias") && !has_bias(c, module)) continue;
        GgufTensor tensor{.name = to + layer.name + end, .canonical = from + module + end};
        if (interleaved && layer.heads != GgufHeads::kNone) {
          tensor.make = GgufTensor::Make::kInterleaved;
          tensor.count = layer.heads == GgufHeads::kQueries ? c.heads : c.kv_heads;
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
  const auto add = [&](const char* key, io::GgufValue value) {
    form->vision.emplace_back(key, std::move(value));
  };
  add("clip.has_vision_encoder", true);
  add("clip.projector_type", v.projector);
  add("clip.vision.projection_dim", gguf_count(v.text_hidden));
  add("clip.vision.image_size", gguf_count(v.image_size));
  add("clip.vision.patch_size", gguf_count(v.patch));
  add("clip.vision.embedding_length", gguf_count(v.hidden));
  add("clip.vision.feed_forward_length", gguf_count(v.inner));
  add("clip.vision.block_count", gguf_count(v.blocks));
  add("clip.vision.attention.head_count", gguf_count(v.heads));
  add("clip.vision.attention.layer_norm_epsilon", static_cast<float>(v.eps));
}

}  // namespace lft::hf
