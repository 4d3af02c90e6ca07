// Names of the tensors: canonical, on disk (the published Qwen2.5-VL without "model." before its
// parts, Qwen3-VL with it; both are read), in transformers' memory and in PEFT's dialects.
#include <string_view>

#include "models/qwen_vl/qwen_vl_family.h"

namespace lft::qwen_vl {
namespace {

using family::joined;
using family::strip;
using family::TensorList;

void list_norm(const std::string& module, const VisionConfig& v, int64_t size, TensorList* list) {
  if (v.generation == Generation::k2_5) {
    list->add(module + ".weight", {size});
  } else {
    list->layer_norm(module, size);
  }
}

void list_vision(const VisionConfig& v, TensorList* list) {
  const std::string root = "vision_tower.";
  list->add(root + "patch_embed.proj.weight", {v.hidden, 3, 2, v.patch, v.patch});
  if (v.generation == Generation::k3) {
    list->add(root + "patch_embed.proj.bias", {v.hidden});
    list->add(root + "pos_embed.weight", {v.positions, v.hidden});
  }
  for (int64_t i = 0; i < v.depth; ++i) {
    const std::string block = root + "blocks." + std::to_string(i) + ".";
    list_norm(block + "norm1", v, v.hidden, list);
    list_norm(block + "norm2", v, v.hidden, list);
    list->linear(block + "attn.qkv", v.hidden, 3 * v.hidden, true);
    list->linear(block + "attn.proj", v.hidden, v.hidden, true);
    if (v.generation == Generation::k2_5) {
      list->linear(block + "mlp.gate_proj", v.hidden, v.intermediate, true);
      list->linear(block + "mlp.up_proj", v.hidden, v.intermediate, true);
      list->linear(block + "mlp.down_proj", v.intermediate, v.hidden, true);
    } else {
      list->linear(block + "mlp.linear_fc1", v.hidden, v.intermediate, true);
      list->linear(block + "mlp.linear_fc2", v.intermediate, v.hidden, true);
    }
  }
}

/// `rest` is what follows "visual".
std::string canonical_visual(std::string_view rest, Generation generation) {
  std::string_view inner;
  const bool deep = strip(rest, "deepstack_merger_list", &inner);
  if (generation == Generation::k2_5 && (deep || strip(rest, "pos_embed", &inner))) return "";
  const bool merges = deep || strip(rest, "merger", &inner);
  return joined(merges ? "multi_modal_projector" : "vision_tower", rest);
}

/// From any spelling to the canonical one; "" for what none of them is.
std::string canonical_of(std::string_view name, Generation generation) {
  std::string_view rest, inner;
  if (strip(name, "lm_head", &rest)) return joined("language_model.lm_head", rest);
  if (strip(name, "visual", &rest)) return canonical_visual(rest, generation);
  if (strip(name, "model", &rest)) {
    if (strip(rest, "visual", &inner)) return canonical_visual(inner, generation);
    if (strip(rest, "language_model", &inner)) return joined("language_model.model", inner);
    for (const char* part : {"embed_tokens", "layers", "norm"}) {
      if (strip(rest, part, &inner)) return joined("language_model.model", rest);
    }
    return "";
  }
  const bool canonical =
      strip(name, "vision_tower", &rest) || strip(name, "multi_modal_projector", &rest) ||
      strip(name, "language_model.model", &rest) || strip(name, "language_model.lm_head", &rest);
  return canonical ? std::string(name) : "";
}

/// The canonical name with its part's name on disk.
std::string spelled(const std::string& canonical, const char* visual, const char* decoder) {
  std::string_view rest;
  if (strip(canonical, "language_model.lm_head", &rest)) return joined("lm_head", rest);
  if (strip(canonical, "language_model.model", &rest)) return joined(decoder, rest);
  if (strip(canonical, "vision_tower", &rest) || strip(canonical, "multi_modal_projector", &rest))
    return joined(visual, rest);
  return canonical;
}

}  // namespace

std::vector<family::TensorSpec> QwenVlFamily::tensors(const family::ModelConfig& config) const {
  const VisionConfig& v = vision_of(config);
  TensorList list;
  list_vision(v, &list);
  const std::string root = "multi_modal_projector.";
  list_norm(root + (generation_ == Generation::k2_5 ? "merger.ln_q" : "merger.norm"), v, v.hidden,
            &list);
  if (generation_ == Generation::k3) {
    for (size_t i = 0; i < v.deep_blocks.size(); ++i)
      list_norm(root + "deepstack_merger_list." + std::to_string(i) + ".norm", v, v.merged(),
                &list);
  }
  for (const family::ProjectorShape::Layer& layer : projector(config).layers)
    list.linear(layer.name, layer.in, layer.out, true);
  list.decoder(config.text);
  return list.tensors;
}

std::string QwenVlFamily::canonical_name(const std::string& stored,
                                         const family::ModelConfig& config) const {
  if (stored.ends_with(".inv_freq")) return "";
  const std::string canonical = canonical_of(stored, generation_);
  if (canonical.empty()) return stored;  // none of ours: the loader reports it as extra
  return config.text.tie_embeddings && canonical == "language_model.lm_head.weight" ? ""
                                                                                    : canonical;
}

std::string QwenVlFamily::stored_name(const std::string& canonical) const {
  return generation_ == Generation::k2_5 ? spelled(canonical, "visual", "model")
                                         : peft_name(canonical);
}

std::string QwenVlFamily::peft_name(const std::string& canonical) const {
  return spelled(canonical, "model.visual", "model.language_model");
}

std::string QwenVlFamily::from_peft_name(const std::string& peft) const {
  return canonical_of(peft, generation_);
}

// PEFT refuses a list of modules, reads "visual" with its mergers or not at all, and passes over
// what there is not.
std::vector<std::string> QwenVlFamily::modules_of_scope(const std::string& scope) const {
  if (scope == "llm") return {"language_model", "lm_head"};
  const bool deep = generation_ == Generation::k3;
  std::vector<std::string> modules;
  if (scope == "projector") {
    modules = {"merger"};
    for (int64_t i = 0; deep && i < kMostDeepBlocks; ++i)
      modules.push_back("deepstack_merger_list." + std::to_string(i));
  } else if (scope == "vision") {
    modules = {"patch_embed"};
    if (deep) modules.emplace_back("pos_embed");
    for (int64_t i = 0; i < kMostBlocks; ++i) modules.push_back("blocks." + std::to_string(i));
  }
  return modules;
}

std::vector<std::string> QwenVlFamily::unused_modules(const family::ModelConfig&) const {
  return {};
}

}  // namespace lft::qwen_vl
