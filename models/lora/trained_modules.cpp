#include "models/lora/trained_modules.h"

#include <map>

#include "models/lora/registry.h"

namespace lft::lora {

std::string module_of(std::string tensor) {
  const auto cut = [&](const std::string& tail) {
    if (tensor.ends_with(tail)) tensor.erase(tensor.size() - tail.size());
  };
  for (const char* tail : {".weight", ".bias"}) cut(tail);
  for (const AdapterTensor& of_adapter : adapter_tensors()) cut("." + of_adapter.name);
  return tensor;
}

std::vector<TrainedModule> trained_modules(const std::vector<Trainable>& trainables) {
  std::vector<TrainedModule> modules;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < trainables.size(); ++i) {
    const std::string& tensor = trainables[i].name;
    const bool a = tensor.ends_with(kLoraA), b = tensor.ends_with(kLoraB);
    const std::string name =
        tensor.substr(0, a || b ? tensor.size() - kLoraA.size() : tensor.rfind('.'));
    const auto [at, fresh] = places.try_emplace(name, modules.size());
    if (fresh) modules.push_back({.name = name, .members = {}});
    TrainedModule& module = modules[at->second];
    module.members.push_back(i);
    if (a) module.a = i;
    if (b) module.b = i;
  }
  return modules;
}

}  // namespace lft::lora
