#include "models/family/names.h"

namespace lft::family {

void TensorList::add(const std::string& name, std::vector<int64_t> shape) {
  tensors.push_back({name, std::move(shape)});
}

void TensorList::linear(const std::string& module, int64_t in, int64_t out, bool bias) {
  add(module + ".weight", {out, in});
  if (bias) add(module + ".bias", {out});
}

void TensorList::layer_norm(const std::string& module, int64_t size) {
  add(module + ".weight", {size});
  add(module + ".bias", {size});
}

void TensorList::vision_layers(const std::string& root, int64_t hidden, int64_t inner,
                               int64_t layers) {
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = root + "encoder.layers." + std::to_string(i) + ".";
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"})
      linear(layer + "self_attn." + name, hidden, hidden, true);
    layer_norm(layer + "layer_norm1", hidden);
    linear(layer + "mlp.fc1", hidden, inner, true);
    linear(layer + "mlp.fc2", inner, hidden, true);
    layer_norm(layer + "layer_norm2", hidden);
  }
}

void TensorList::decoder(const llama::LlamaConfig& c) {
  const std::string root = "language_model.model.";
  add(root + "embed_tokens.weight", {c.vocab, c.hidden});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = root + "layers." + std::to_string(i) + ".";
    linear(layer + "self_attn.q_proj", c.hidden, c.heads * c.head_dim, c.has_qkv_bias());
    linear(layer + "self_attn.k_proj", c.hidden, c.kv_heads * c.head_dim, c.has_qkv_bias());
    linear(layer + "self_attn.v_proj", c.hidden, c.kv_heads * c.head_dim, c.has_qkv_bias());
    linear(layer + "self_attn.o_proj", c.heads * c.head_dim, c.hidden, c.attention_bias);
    if (c.qk_norm) {
      add(layer + "self_attn.q_norm.weight", {c.head_dim});
      add(layer + "self_attn.k_norm.weight", {c.head_dim});
    }
    linear(layer + "mlp.gate_proj", c.hidden, c.intermediate, c.mlp_bias);
    linear(layer + "mlp.up_proj", c.hidden, c.intermediate, c.mlp_bias);
    linear(layer + "mlp.down_proj", c.intermediate, c.hidden, c.mlp_bias);
    add(layer + "input_layernorm.weight", {c.hidden});
    add(layer + "post_attention_layernorm.weight", {c.hidden});
    if (!c.branch_norms) continue;
    add(layer + "pre_feedforward_layernorm.weight", {c.hidden});
    add(layer + "post_feedforward_layernorm.weight", {c.hidden});
  }
  add(root + "norm.weight", {c.hidden});
  if (!c.tie_embeddings) add("language_model.lm_head.weight", {c.vocab, c.hidden});
}

bool strip(std::string_view name, std::string_view head, std::string_view* rest) {
  if (!name.starts_with(head)) return false;
  if (name.size() == head.size()) {
    *rest = {};
    return true;
  }
  if (name[head.size()] != '.') return false;
  *rest = name.substr(head.size() + 1);
  return true;
}

std::string joined(std::string_view head, std::string_view rest) {
  return rest.empty() ? std::string(head) : std::string(head) + "." + std::string(rest);
}

}  // namespace lft::family
