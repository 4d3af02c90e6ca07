#include "models/qwen_vl/qwen_vl_names.h"

#include <string>

namespace lft::qwen_vl {
namespace {

void list_norm(const std::string& module, const VisionConfig& v, int64_t size,
               family::TensorList* list) {
  if (v.generation == Generation::k2_5) {
    list->add(module + ".weight", {size});
  } else {
    list->layer_norm(module, size);
  }
}

void list_vision(const VisionConfig& v, family::TensorList* list) {
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

std::vector<family::NameRule> part_names(const char* visual, const char* decoder) {
  return {{"language_model.lm_head", "lm_head"},
          {"language_model.model", decoder},
          {"vision_tower", visual},
          {"multi_modal_projector", visual}};
}

}  // namespace

family::CheckpointNames checkpoint_names(Generation generation) {
  const bool deep = generation == Generation::k3;
  family::CheckpointNames names;
  for (const std::string& visual : {std::string("visual"), std::string("model.visual")}) {
    names.canonical.push_back({visual + ".deepstack_merger_list",
                               deep ? "multi_modal_projector.deepstack_merger_list" : ""});
    if (!deep) names.canonical.push_back({visual + ".pos_embed", ""});
    names.canonical.push_back({visual + ".merger", "multi_modal_projector.merger"});
    names.canonical.push_back({visual, "vision_tower"});
  }
  for (const char* part : {".embed_tokens", ".layers", ".norm"})
    names.canonical.push_back(
        {std::string("model") + part, std::string("language_model.model") + part});
  names.canonical.push_back({"model.language_model", "language_model.model"});
  names.canonical.push_back({"lm_head", "language_model.lm_head"});
  for (const char* part :
       {"vision_tower", "multi_modal_projector", "language_model.model", "language_model.lm_head"})
    names.canonical.push_back({part, part});
  names.peft = part_names("model.visual", "model.language_model");
  names.stored = deep ? names.peft : part_names("visual", "model");
  names.ignored = {".inv_freq"};
  // PEFT's module "visual" contains the mergers, so the parts of the tower are listed one by one.
  // PEFT ignores those that a model does not have.
  names.scopes = {{"llm", {"language_model", "lm_head"}},
                  {"projector", {"merger"}},
                  {"vision", {"patch_embed"}}};
  if (deep) names.scopes["vision"].emplace_back("pos_embed");
  for (int64_t i = 0; deep && i < kMostDeepBlocks; ++i)
    names.scopes["projector"].push_back("deepstack_merger_list." + std::to_string(i));
  for (int64_t i = 0; i < kMostBlocks; ++i)
    names.scopes["vision"].push_back("blocks." + std::to_string(i));
  return names;
}

std::vector<family::TensorSpec> list_tensors(const family::ModelConfig& config,
                                             const family::ProjectorShape& projector) {
  const VisionConfig& v = vision_of(config);
  const bool deep = v.generation == Generation::k3;
  family::TensorList list;
  list_vision(v, &list);
  const std::string root = "multi_modal_projector.";
  list_norm(root + (deep ? "merger.norm" : "merger.ln_q"), v, v.hidden, &list);
  for (size_t i = 0; deep && i < v.deep_blocks.size(); ++i)
    list_norm(root + "deepstack_merger_list." + std::to_string(i) + ".norm", v, v.merged(), &list);
  for (const family::ProjectorShape::Layer& layer : projector.layers)
    list.linear(layer.name, layer.in, layer.out, true);
  list.decoder(config.text);
  return list.tensors;
}

}  // namespace lft::qwen_vl
