#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/lora/registry.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/peft_config.h"
#include "src/hf/adapter/target_regex.h"
#include "src/hf/weights.h"
#include "src/io/files.h"

namespace lft::hf {
namespace {

/// PEFT's module names of a scope that is saved whole.
std::vector<std::string> saved_modules(const std::string& scope,
                                       const family::ModelConfig& config) {
  std::vector<std::string> modules = config.family->modules_of_scope(scope);
  if (config.text.tie_embeddings) std::erase(modules, "lm_head");
  if (!modules.empty()) return modules;
  refuse(ErrorKind::kUsage, "a scope that an adapter cannot hold whole", "full", scope,
         "llm, projector or vision", "a model trained with full: [all] is saved as a model");
}

at::Tensor master(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kFloat).contiguous();
}

lora::NamedTensors saved_tensors(const lora::Variant& variant, layers::LinearAdapter& adapter) {
  if (variant.saved != nullptr) return variant.saved(adapter);
  lora::NamedTensors tensors;
  for (const auto& parameter : adapter.named_parameters())
    tensors[parameter.key()] = parameter.value();
  return tensors;
}

void refuse_no_lora(const std::string& path) {
  refuse(ErrorKind::kUsage, "an adapter without LoRA cannot be saved", path,
         "no layer has an adapter", "at least one (PEFT opens no adapter without a target module)",
         "give lora.targets");
}

}  // namespace

std::string notes_text(const AdapterNotes& notes) {
  return pretty_json({{"base_path", notes.base_path},
                      {"base_fingerprint", notes.base_fingerprint},
                      {"template", notes.template_name},
                      {"image_fit", notes.image_fit},
                      {"tokenizer", notes.tokenizer}});
}

void save_adapter(const std::string& path, family::Model& model, const lora::LoraOptions& lora,
                  const std::vector<std::string>& full, const AdapterNotes& notes) {
  const lora::Variant& trained = lora::find_variant(lora.variant);
  const lora::LoraOptions saved = lora::saved_options(lora);
  PeftConfig config{.lora = saved,
                    .base_model_name_or_path = notes.base_path,
                    .modules_to_save = {},
                    .inference_mode = true};
  std::map<std::string, at::Tensor> tensors;
  std::vector<std::string> targets;
  for (const lora::LinearSite& site : lora::linear_sites(*model)) {
    if (!site.layer->adapter()) continue;
    const std::string name = model->config.family->peft_name(site.name);
    targets.push_back(name);
    lora::NamedTensors of_site = saved_tensors(trained, *site.layer->adapter());
    for (const lora::AdapterTensor& tensor : lora::find_variant(saved.variant).tensors)
      tensors[kPeftPrefix + name + "." + tensor.stored] = master(of_site.at(tensor.name));
  }
  if (targets.empty()) refuse_no_lora(path);
  const std::map<std::string, at::Tensor> parameters = model_parameters(*model);
  for (const std::string& scope : full) {
    for (const std::string& module : saved_modules(scope, model->config))
      config.modules_to_save.push_back(module);
    for (const auto& [name, parameter] : parameters) {
      // PEFT maps LoRA keys between the dialects and those of saved modules not.
      if (lora::scope_of(name) == scope)
        tensors[kPeftPrefix + model->config.family->whole_name(name)] = master(parameter);
    }
  }
  io::write_dir_atomic(path, [&](const std::string& out) {
    write_tensors(out + "/" + kAdapterWeights, tensors);
    io::write_file_atomic(out + "/adapter_config.json",
                          peft_config_text(config, target_regex(targets)));
    io::write_file_atomic(out + "/" + kAdapterNotes, notes_text(notes));
    const std::string rank = std::to_string(saved.rank) + lora::find_variant(saved.variant).note;
    io::write_file_atomic(out + "/README.md",
                          adapter_readme(rank, config.modules_to_save, notes, model->config));
  });
}

}  // namespace lft::hf
