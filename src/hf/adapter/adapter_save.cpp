#include "src/hf/adapter/adapter_save.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/lora/inject_select.h"
#include "models/lora/registry.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_write.h"
#include "src/hf/weights.h"

namespace lft::hf {
namespace {

/// PEFT's module names of a fully saved scope.
std::vector<std::string> saved_modules(const std::string& scope,
                                       const family::ModelConfig& config) {
  std::vector<std::string> modules = config.family->names.modules_of_scope(scope);
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

}  // namespace

void save_adapter(const std::string& path, family::Model& model, const lora::LoraOptions& lora,
                  const std::vector<std::string>& full, const AdapterNotes& notes) {
  const lora::Variant& trained = lora::find_variant(lora.variant);
  AdapterContents contents{.lora = lora::saved_options(lora), .notes = notes};
  for (const lora::LinearSite& site : lora::linear_sites(*model)) {
    if (!site.layer->adapter()) continue;
    lora::NamedTensors& tensors = contents.tensors[site.name];
    for (const auto& [name, tensor] : saved_tensors(trained, *site.layer->adapter()))
      tensors[name] = master(tensor);
  }
  const std::map<std::string, at::Tensor> parameters = model_parameters(*model);
  for (const std::string& scope : full) {
    std::vector<std::string> saved;
    for (const auto& [name, parameter] : parameters) {
      if (lora::scope_of(name) != scope) continue;
      contents.full[name] = master(parameter);
      saved.push_back(model->config.family->names.whole_name(name));
    }
    for (const std::string& module : saved_modules(scope, model->config)) {
      const auto has = [&](const std::string& name) { return saves({module}, name); };
      if (std::ranges::any_of(saved, has)) contents.modules_to_save.push_back(module);
    }
  }
  write_adapter(path, contents, model->config);
}

}  // namespace lft::hf
