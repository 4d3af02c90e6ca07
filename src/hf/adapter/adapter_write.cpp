#include "src/hf/adapter/adapter_write.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "models/lora/registry.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/adapter/adapter_readme.h"
#include "src/hf/adapter/expert_adapter.h"
#include "src/hf/adapter/peft_config.h"
#include "src/hf/adapter/target_names.h"
#include "src/hf/expert_slices.h"
#include "src/hf/tied_head.h"
#include "src/hf/weights.h"
#include "src/io/files.h"

namespace lft::hf {
namespace {

std::string spelled(const family::Family& family, const std::string& canonical, Dialect dialect) {
  if (dialect == Dialect::kD1) return family.names.stored_name(canonical);
  return dialect == Dialect::kD3 ? family.names.whole_name(canonical)
                                 : family.names.peft_name(canonical);
}

/// All spellings that a reader of the dialect's keys may use: PEFT maps keys between them and
/// ignores targets that its model does not have.
std::vector<std::string> names_of(const family::Family& family,
                                  const std::vector<std::string>& modules, Dialect dialect) {
  std::vector<std::string> names = target_names(family, modules);
  if (dialect != Dialect::kD1) return names;
  for (const std::string& module : modules) names.push_back(family.names.stored_name(module));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// A pattern key for one module, by its full name. PEFT warns about a key that matches no module,
/// so several spellings are one expression.
std::string pattern_key(const family::Family& family, const std::string& module, Dialect dialect) {
  const std::vector<std::string> names = names_of(family, {module}, dialect);
  return names.size() == 1 ? names[0] : "(?:" + join(names, "|") + ")";
}

/// rank_pattern and alpha_pattern of every layer whose values differ.
void name_own(const family::Family& family, const lora::LoraOptions& lora, Dialect dialect,
              PeftConfig& config) {
  for (const auto& [module, own] : lora.own) {
    const std::string key = pattern_key(family, module, dialect);
    if (own.rank != lora.rank) config.rank_pattern.emplace_back(key, own.rank);
    if (own.alpha != lora.alpha) config.alpha_pattern.emplace_back(key, own.alpha);
  }
}

/// The rank as text for a README.
std::string rank_text(const lora::LoraOptions& saved) {
  return std::to_string(saved.rank) + lora::find_variant(saved.variant).note +
         (saved.own.empty() ? "" : ", and others by rank_pattern and alpha_pattern");
}

}  // namespace

void write_adapter(const std::string& path, const AdapterContents& contents,
                   const family::ModelConfig& model, Dialect dialect) {
  if (contents.tensors.empty()) {
    refuse(ErrorKind::kUsage, "an adapter without LoRA cannot be saved", path,
           "no layer has an adapter",
           "at least one (PEFT opens no adapter without a target module)", "give lora.targets");
  }
  const family::Family& family = *model.family;
  PeftConfig config{.lora = contents.lora,
                    .base_model_name_or_path = contents.notes.base_path,
                    .modules_to_save = contents.modules_to_save,
                    .inference_mode = true};
  std::map<std::string, at::Tensor> full = contents.full;
  if (const auto embedding = full.find(kEmbedding + ".weight");
      embedding != full.end() && model.text.tie_embeddings) {
    full[kHead + ".weight"] = embedding->second;  // otherwise PEFT would keep the base's
    if (!saves(config.modules_to_save, "lm_head.weight"))
      config.modules_to_save.emplace_back("lm_head");
  }
  const int64_t experts = model.text.experts.count;
  std::map<std::string, at::Tensor> tensors;
  std::vector<std::string> modules, of_experts;
  for (const auto& [module, parts] : contents.tensors)
    (family.names.is_experts(module) ? of_experts : modules).push_back(module);
  for (const std::string& module : of_experts) {
    const lora::NamedTensors& parts = contents.tensors.at(module);
    const std::string key =
        kPeftPrefix + spelled(family, expert_wrapper(family.names, module, of_experts), dialect) +
        ".";
    tensors[key + "lora_A.weight"] = parts.at("lora_A");
    tensors[key + "lora_B.weight"] = peft_expert_b(parts.at("lora_B"), experts);
  }
  for (const std::string& module : modules) {
    const lora::NamedTensors& parts = contents.tensors.at(module);
    const std::string key = kPeftPrefix + spelled(family, module, dialect) + ".";
    if (module == kEmbedding) {  // PEFT's form of LoRA on an embedding
      tensors[key + "lora_embedding_A"] = parts.at("lora_B").t();
      tensors[key + "lora_embedding_B"] = parts.at("lora_A").t();
      continue;
    }
    for (const lora::AdapterTensor& tensor : lora::find_variant(contents.lora.variant).tensors)
      tensors[key + tensor.stored] = parts.at(tensor.name);
  }
  const Dialect whole = dialect == Dialect::kEvery ? Dialect::kD3 : dialect;
  for (const auto& [name, tensor] : full)
    tensors[kPeftPrefix + spelled(family, name, whole)] = written_tensor(model, name, tensor);
  config.rule.targets.names = names_of(family, modules, dialect);
  config.rule.parameters = names_of(family, of_experts, dialect);
  name_own(family, contents.lora, dialect, config);
  io::write_dir_atomic(path, [&](const std::string& out) {
    write_tensors(out + "/" + kAdapterWeights, tensors);
    io::write_file_atomic(out + "/adapter_config.json", peft_config_text(config));
    io::write_file_atomic(out + "/" + kAdapterNotes, notes_text(contents.notes));
    write_chat_template(out, contents.notes);
    io::write_file_atomic(
        out + "/README.md",
        adapter_readme(rank_text(contents.lora), config.modules_to_save, contents.notes, model,
                       io::absolute_path(contents.folder.empty() ? path : contents.folder)));
  });
}

}  // namespace lft::hf
