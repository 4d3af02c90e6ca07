// Names of LLaVA's tensors: on disk (canonical), in transformers' memory, and in PEFT's three
// dialects.
#include <algorithm>
#include <string_view>

#include "models/llava/llava.h"

namespace lft::llava {
namespace {

using Shape = std::vector<int64_t>;

struct Lister {
  std::vector<TensorSpec> tensors;
  void add(const std::string& name, Shape shape) { tensors.push_back({name, std::move(shape)}); }
  void linear(const std::string& module, int64_t in, int64_t out, bool bias) {
    add(module + ".weight", {out, in});
    if (bias) add(module + ".bias", {out});
  }
  void layer_norm(const std::string& module, int64_t size) {
    add(module + ".weight", {size});
    add(module + ".bias", {size});
  }
};

void list_vision(const clip::ClipConfig& c, Lister* list) {
  const std::string root = "vision_tower.vision_model.";
  list->add(root + "embeddings.class_embedding", {c.hidden});
  list->add(root + "embeddings.patch_embedding.weight",
            {c.hidden, c.channels, c.patch_size, c.patch_size});
  list->add(root + "embeddings.position_embedding.weight", {c.grid() * c.grid() + 1, c.hidden});
  list->layer_norm(root + "pre_layrnorm", c.hidden);
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = root + "encoder.layers." + std::to_string(i) + ".";
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"})
      list->linear(layer + "self_attn." + name, c.hidden, c.hidden, true);
    list->layer_norm(layer + "layer_norm1", c.hidden);
    list->linear(layer + "mlp.fc1", c.hidden, c.intermediate, true);
    list->linear(layer + "mlp.fc2", c.intermediate, c.hidden, true);
    list->layer_norm(layer + "layer_norm2", c.hidden);
  }
  list->layer_norm(root + "post_layernorm", c.hidden);
}

void list_text(const llama::LlamaConfig& c, Lister* list) {
  const std::string root = "language_model.model.";
  list->add(root + "embed_tokens.weight", {c.vocab, c.hidden});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = root + "layers." + std::to_string(i) + ".";
    list->linear(layer + "self_attn.q_proj", c.hidden, c.heads * c.head_dim, c.attention_bias);
    list->linear(layer + "self_attn.k_proj", c.hidden, c.kv_heads * c.head_dim, c.attention_bias);
    list->linear(layer + "self_attn.v_proj", c.hidden, c.kv_heads * c.head_dim, c.attention_bias);
    list->linear(layer + "self_attn.o_proj", c.heads * c.head_dim, c.hidden, c.attention_bias);
    list->linear(layer + "mlp.gate_proj", c.hidden, c.intermediate, c.mlp_bias);
    list->linear(layer + "mlp.up_proj", c.hidden, c.intermediate, c.mlp_bias);
    list->linear(layer + "mlp.down_proj", c.intermediate, c.hidden, c.mlp_bias);
    list->add(layer + "input_layernorm.weight", {c.hidden});
    list->add(layer + "post_attention_layernorm.weight", {c.hidden});
  }
  list->add(root + "norm.weight", {c.hidden});
  if (!c.tie_embeddings) list->add("language_model.lm_head.weight", {c.vocab, c.hidden});
}

/// Whether `name` is `head`, or starts with it and a dot; then `rest` is what follows the dot.
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

/// From any spelling to the canonical one; "" for what none of them is.
std::string to_canonical(std::string_view name) {
  std::string_view rest, inner;
  if (strip(name, "model", &rest)) {  // transformers >= 4.52
    if (strip(rest, "language_model", &inner)) return joined("language_model.model", inner);
    if (strip(rest, "multi_modal_projector", &inner) || strip(rest, "vision_tower", &inner))
      return to_canonical(rest);
    return "";
  }
  if (strip(name, "lm_head", &rest)) return joined("language_model.lm_head", rest);
  if (strip(name, "language_model", &rest)) {
    return strip(rest, "model", &inner) || strip(rest, "lm_head", &inner) ? std::string(name) : "";
  }
  if (strip(name, "multi_modal_projector", &rest)) return std::string(name);
  if (!strip(name, "vision_tower", &rest)) return "";
  if (rest.empty() || strip(rest, "vision_model", &inner)) return std::string(name);
  for (const char* part :
       {"embeddings", "pre_layrnorm", "encoder", "post_layernorm"}) {  // transformers >= 5.6
    if (strip(rest, part, &inner)) return joined("vision_tower.vision_model", rest);
  }
  return "";
}

}  // namespace

std::vector<TensorSpec> llava_tensors(const LlavaConfig& config) {
  Lister list;
  list_vision(config.vision, &list);
  const int64_t features =
      config.vision.hidden * static_cast<int64_t>(config.vision_feature_layers.size());
  list.linear("multi_modal_projector.linear_1", features, config.text.hidden,
              config.projector_bias);
  list.linear("multi_modal_projector.linear_2", config.text.hidden, config.text.hidden,
              config.projector_bias);
  list_text(config.text, &list);
  return list.tensors;
}

std::string llava_canonical_name(const std::string& hf_name, const LlavaConfig& config) {
  if (hf_name.ends_with(".position_ids") || hf_name.ends_with(".rotary_emb.inv_freq")) return "";
  const std::string canonical = to_canonical(hf_name);
  if (canonical.empty()) return hf_name;  // none of ours: the loader reports it as extra
  return config.text.tie_embeddings && canonical == "language_model.lm_head.weight" ? ""
                                                                                    : canonical;
}

std::string llava_peft_name(const std::string& canonical) {
  std::string_view rest;
  if (strip(canonical, "language_model.model", &rest)) return joined("model.language_model", rest);
  if (strip(canonical, "language_model.lm_head", &rest)) return joined("lm_head", rest);
  return "model." + canonical;
}

std::string llava_from_peft_name(const std::string& peft) { return to_canonical(peft); }

std::vector<std::string> llava_unused_modules(const LlavaConfig& config) {
  int64_t last = 0;
  for (const int64_t layer : config.vision_feature_layers)
    last = std::max(last, layer < 0 ? layer + config.vision.layers + 1 : layer);
  std::vector<std::string> unused;
  for (int64_t i = last; i < config.vision.layers; ++i) {
    unused.push_back(joined("vision_tower.vision_model.encoder.layers", std::to_string(i)));
  }
  unused.emplace_back("vision_tower.vision_model.post_layernorm");
  return unused;
}

}  // namespace lft::llava
