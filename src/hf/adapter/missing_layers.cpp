#include "src/hf/adapter/missing_layers.h"

#include <algorithm>
#include <functional>

#include "models/family/model.h"
#include "models/family/scopes.h"
#include "models/lora/inject_select.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/expert_adapter.h"
#include "src/hf/adapter/peft_config.h"

namespace lft::hf {
namespace {

using Spelling = std::function<std::string(const std::string&)>;

/// The spelling of canonical module names in the adapter's file, which target_modules also uses;
/// null if the file mixes spellings.
Spelling spelling_of(const AdapterDir& dir, const family::Family& family) {
  std::vector<Spelling> spellings = {
      [&](const std::string& name) { return family.names.peft_name(name); },
      [&](const std::string& name) { return family.names.whole_name(name); },
      [&](const std::string& name) { return family.names.stored_name(name); },
      // The decoder with its head, as in the original LLaVA, where projector and tower have no
      // LoRA.
      [](const std::string& name) {
        return name.starts_with(family::kDecoder) ? name.substr(sizeof(family::kDecoder) - 1) : "";
      }};
  const size_t with_head = spellings.size();
  for (size_t i = 0; i < with_head; ++i) {
    spellings.push_back([whole = spellings[i]](const std::string& name) {
      const std::string spelled = whole(name);
      return spelled.starts_with("model.") ? spelled.substr(6) : spelled;
    });
  }
  for (const Spelling& spelling : spellings) {
    const auto fits = [&](const std::string& module) {
      return dir.stored_names.at(module + ".lora_A.weight")
          .starts_with(kPeftPrefix + spelling(module) + ".lora_");
    };
    const auto fits_or_wrapped = [&](const std::string& module) {
      return family.names.is_experts(module) || fits(module);
    };
    if (std::ranges::all_of(dir.lora_modules, fits_or_wrapped)) return spelling;
  }
  return nullptr;
}

/// Layers by canonical name.
std::vector<std::string> missing_layers(const AdapterDir& dir, const std::string& config_file,
                                        const family::ModelConfig& config) {
  const PeftTargetRule rule = read_peft_config(config_file).rule;
  const family::Family& family = *config.family;
  const Spelling spelling = spelling_of(dir, family);
  if ((rule.targets.empty() && rule.parameters.empty()) || spelling == nullptr) return {};
  const std::optional<PeftTargets> targets = PeftTargets::of(rule, config_file);
  if (!targets) return {};
  family::Model shapes =
      family.build(config, at::kFloat, at::Device(at::kMeta), ops::BaseStorage::kDense);
  const std::vector<std::string> unused = family.vision(config).unused_modules;
  const auto is_unused = [&](const std::string& module) {
    return std::ranges::any_of(unused, [&](const std::string& each) {
      return module == each || module.starts_with(each + ".");
    });
  };
  std::vector<std::string> missing;
  for (const lora::LinearSite& site : lora::linear_sites(*shapes)) {
    const bool stored = std::ranges::binary_search(dir.lora_modules, site.name) ||
                        dir.stored_names.contains(site.name + ".weight");
    const std::string name = stored || is_unused(site.name) ? "" : spelling(site.name);
    const bool takes =
        site.layer->experts > 0 ? names_parameter(rule.parameters, name) : targets->takes(name);
    if (!name.empty() && takes) missing.push_back(site.name);
  }
  return missing;
}

}  // namespace

void warn_of_missing_layers(const AdapterDir& dir, const family::ModelConfig& config) {
  constexpr size_t kNamed = 5;
  if (dir.parts) return;
  const std::string config_file = dir.path + "/adapter_config.json";
  const std::vector<std::string> missing = missing_layers(dir, config_file, config);
  if (missing.empty()) return;
  warning("the adapter is incomplete: target_modules of " + config_file + " names " +
          std::to_string(missing.size()) + (missing.size() == 1 ? " layer" : " layers") +
          " without tensors in " + kAdapterWeights + ": " + join_names(missing, kNamed) +
          ". The base's weights are used there as they are; take both files from the same save");
}

}  // namespace lft::hf
