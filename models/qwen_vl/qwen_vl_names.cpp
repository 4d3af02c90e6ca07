#include "models/qwen_vl/qwen_vl_names.h"

#include <string>

namespace lft::qwen_vl {
namespace {

std::vector<family::NameRule> part_names(const char* visual, const char* decoder) {
  return {{"language_model.lm_head", "lm_head"},
          {"language_model.model", decoder},
          {"vision_tower", visual},
          {"multi_modal_projector", visual}};
}

}  // namespace

family::CheckpointNames checkpoint_names(Kind kind) {
  const Generation generation = kind.generation;
  const bool newer = generation == Generation::k3 || generation == Generation::k3_5,
             deep = generation == Generation::k3;
  family::CheckpointNames names;
  for (const std::string& visual : {std::string("visual"), std::string("model.visual")}) {
    names.canonical.push_back({visual + ".deepstack_merger_list",
                               deep ? "multi_modal_projector.deepstack_merger_list" : ""});
    if (!newer) names.canonical.push_back({visual + ".pos_embed", ""});
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
  names.stored = newer ? names.peft : part_names("visual", "model");
  names.ignored = {".inv_freq"};
  if (generation == Generation::k3_5) names.ignored_parts = {"mtp"};  // predicts several tokens
  if (kind.experts) names.experts = {".mlp.experts.gate_up_proj", ".mlp.experts.down_proj"};
  names.experts_transposed = generation == Generation::k3;
  names.experts_apart = kind.experts && generation == Generation::k3_5;
  // PEFT's module "visual" contains the mergers, so the parts of the tower are listed one by one.
  // PEFT ignores those that a model does not have.
  names.scopes = {{"llm", {"language_model", "lm_head"}},
                  {"projector", {"merger"}},
                  {"vision", {"patch_embed"}}};
  if (newer) names.scopes["vision"].emplace_back("pos_embed");
  for (int64_t i = 0; deep && i < kMostDeepBlocks; ++i)
    names.scopes["projector"].push_back("deepstack_merger_list." + std::to_string(i));
  for (int64_t i = 0; i < kMostBlocks; ++i)
    names.scopes["vision"].push_back("blocks." + std::to_string(i));
  return names;
}

}  // namespace lft::qwen_vl
