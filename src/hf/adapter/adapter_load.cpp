#include "src/hf/adapter/adapter_load.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/lora/inject_select.h"
#include "models/lora/registry.h"
#include "models/ops/weight/expert_weight.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/expert_adapter.h"
#include "src/hf/file_weight.h"
#include "src/hf/tied_head.h"
#include "src/hf/weights.h"

namespace lft::hf {
namespace {

using Specs = std::map<std::string, family::TensorSpec>;

constexpr std::string_view kCopy = ".base_layer.weight";

/// The base's tensor that a fully saved tensor replaces or copies.
std::string base_tensor(const std::string& name, bool ties) {
  const std::string tensor =
      name.ends_with(kCopy) ? name.substr(0, name.size() - kCopy.size()) + ".weight" : name;
  return ties && tensor == kHead + ".weight" ? kEmbedding + ".weight" : tensor;
}

/// Compares an adapter's headers with the tensors of its model.
class Fitting {
 public:
  Fitting(const AdapterDir& dir, const io::SafetensorsFile& file, const family::ModelConfig& config)
      : dir_(dir), file_(file), family_(*config.family), ties_(config.text.tie_embeddings) {
    for (const family::TensorSpec& spec : config.family->layout(config).tensors)
      specs_[spec.name] = spec;
  }

  void check() {
    for (const std::string& module : dir_.lora_modules) check_lora(module);
    for (const auto& [name, stored] : dir_.stored_names) {
      if (!of_adapter(name)) check_whole(name, stored);
    }
    for (const auto& [name, spec] : specs_) {
      if (saves(dir_.modules_to_save, family_.names.peft_name(name)) &&
          !dir_.stored_names.contains(name))
        missing_.items.push_back(name + " " + shape_text(spec.stored_shape(false)));
    }
    const std::vector<Faults> faults = {absent_, misshapen_, missing_};
    if (!any(faults)) return;
    refuse(ErrorKind::kInput, "the adapter does not fit the model", file_.path(), describe(faults),
           "modules and shapes of the base model",
           "give the base model that the adapter was trained on");
  }

 private:
  bool of_adapter(const std::string& name) const {
    return std::any_of(tensors_.begin(), tensors_.end(), [&](const lora::AdapterTensor& tensor) {
      return name.ends_with("." + tensor.stored);
    });
  }

  void check_lora(const std::string& module) {
    const auto weight = specs_.find(module + ".weight");
    if (weight == specs_.end() || weight->second.shape.size() != 2) {
      absent_.items.push_back(module);
      return;
    }
    const int64_t rank = dir_.lora.of(module).rank, experts = weight->second.experts;
    for (const lora::AdapterTensor& tensor : tensors_) {
      std::vector<int64_t> shape = shape_of(tensor, weight->second.shape, rank, experts);
      if (experts > 0 && tensor.name == "lora_B") shape = {shape[0] / experts, rank * experts};
      if (module == kEmbedding) std::reverse(shape.begin(), shape.end());
      expect(dir_.stored_names.at(module + "." + tensor.stored), shape);
    }
  }

  void check_whole(const std::string& name, const std::string& stored) {
    const std::string target = base_tensor(name, ties_);
    const auto at = specs_.find(target);
    if (at == specs_.end()) {
      absent_.items.push_back(target);
      return;
    }
    expect(stored, at->second.stored_shape(/*transposed=*/false));
  }

  void expect(const std::string& stored, const std::vector<int64_t>& shape) {
    const io::TensorInfo& info = file_.info(stored);
    if (info.shape != shape)
      misshapen_.items.push_back(stored + ": found " + shape_text(info.shape) + ", expected " +
                                 shape_text(shape));
  }

  const AdapterDir& dir_;
  const io::SafetensorsFile& file_;
  const family::Family& family_;
  const bool ties_;
  const std::vector<lora::AdapterTensor>& tensors_ = lora::find_variant(dir_.lora.variant).tensors;
  Specs specs_;
  Faults absent_{"that the model has not", {}}, misshapen_{"of a wrong shape", {}},
      missing_{"missing of modules_to_save", {}};
};

at::Tensor read_finite(const io::SafetensorsFile& file, const std::string& stored) {
  const at::Tensor tensor = read_tensor(file, file.info(stored));
  refuse_non_finite(tensor, stored, file.path());
  return tensor.to(at::kFloat);
}

void check_not_injected(const std::vector<lora::LinearSite>& sites) {
  for (const lora::LinearSite& site : sites) {
    if (site.layer->adapter())
      throw Error(ErrorKind::kInternal, "load_adapter: " + site.name + " has an adapter already");
  }
}

/// Replaces the weight of a layer that has no memory for it.
void hold(layers::Linear layer, const at::Tensor& weight) {
  const at::Tensor held = weight.to(layer->device());
  if (layer->experts == 0) return layer->store(c10::make_intrusive<HeldWeight>(held));
  std::vector<c10::intrusive_ptr<ops::CodedWeight>> experts;
  for (const at::Tensor& expert : held.chunk(layer->experts))
    experts.push_back(c10::make_intrusive<HeldWeight>(expert));
  layer->store(c10::make_intrusive<ops::ExpertStorage>(std::move(experts)));
}

/// lft's layers require 1 <= rank <= max(in, out); PEFT also writes larger ranks.
void check_rank(const AdapterDir& dir, const std::vector<lora::LinearSite>& sites) {
  for (const lora::LinearSite& site : sites) {
    const int64_t most = std::max(site.layer->outputs(), site.layer->weight.size(1));
    const int64_t rank = dir.lora.of(site.name).rank;
    if (rank <= most) continue;
    refuse(ErrorKind::kInput, "the adapter's rank is larger than a layer",
           dir.path + ": " + site.name, "rank " + std::to_string(rank),
           "at most " + std::to_string(most) + ", the larger side of the layer's weight");
  }
}

lora::NamedTensors on_device(lora::NamedTensors tensors, at::Device device) {
  for (auto& [name, tensor] : tensors) tensor = tensor.to(device);
  return tensors;
}

void copy_lora(lora::LinearSite& site, const lora::NamedTensors& tensors) {
  auto parameters = site.layer->adapter()->named_parameters();
  for (const auto& [name, tensor] : tensors) parameters[name].copy_(tensor);
}

}  // namespace

bool saves(const std::vector<std::string>& modules_to_save, const std::string& path) {
  return std::ranges::any_of(modules_to_save, [&](const std::string& module) {
    return path.find(module + ".") != std::string::npos;
  });
}

AdapterTensors read_adapter(const AdapterDir& dir, const family::ModelConfig& config) {
  const io::SafetensorsFile file(dir.weights());
  Fitting(dir, file, config).check();
  AdapterTensors tensors;
  for (const std::string& module : dir.lora_modules) {
    for (const lora::AdapterTensor& each : lora::find_variant(dir.lora.variant).tensors) {
      tensors.lora[module][each.name] =
          read_finite(file, dir.stored_names.at(module + "." + each.stored));
      at::Tensor& tensor = tensors.lora[module][each.name];
      if (module == kEmbedding) tensor = tensor.t().contiguous();
      if (config.family->names.is_experts(module) && each.name == "lora_B")
        tensor = expert_b_of_peft(tensor, config.text.experts.count);
    }
  }
  const bool ties = config.text.tie_embeddings;
  for (const std::string& name : dir.full_tensors) {
    if (base_tensor(name, ties) == name)  // else the embedding's other name (one_table)
      tensors.full[name] = read_finite(file, dir.stored_names.at(name));
    if (config.family->names.is_expert_weight(name))
      tensors.full[name] = tensors.full[name].flatten(0, 1);
  }
  for (const auto& [name, stored] : dir.stored_names) {
    if (!name.ends_with(kCopy)) continue;
    tensors.base_copies.emplace_back(base_tensor(name, ties), read_finite(file, stored));
  }
  return tensors;
}

void check_base_copy(const at::Tensor& copy, const at::Tensor& base, const std::string& name,
                     const AdapterDir& dir) {
  // The adapter may store the copy in a wider type than that of the base in memory.
  if (copy.to(base.scalar_type()).equal(base.to(at::kCPU))) return;
  refuse(ErrorKind::kInput, "the adapter contains another base weight than the model",
         dir.path + ": " + name, "different numbers",
         "the model's own weight (PEFT stores it with save_embedding_layers and next to an adapter "
         "on LM head or embedding, and would replace the base's with it)",
         "give the base model that the adapter was trained on");
}

void load_adapter(family::Model& model, const AdapterDir& dir) {
  const at::NoGradGuard no_grad;
  const AdapterTensors tensors = read_adapter(dir, model->config);
  std::vector<lora::LinearSite> sites = lora::linear_sites(*model);
  check_not_injected(sites);
  std::map<std::string, layers::Linear> stored;  // their weights have no memory
  for (const lora::LinearSite& site : sites) {
    if (site.layer->weight.is_meta()) stored.emplace(site.name + ".weight", site.layer);
  }
  std::erase_if(sites,
                [&](const lora::LinearSite& site) { return !tensors.lora.contains(site.name); });
  if (sites.size() + tensors.lora.count(kEmbedding) != tensors.lora.size())
    throw Error(ErrorKind::kInternal, "load_adapter: a linear layer is no site");
  check_rank(dir, sites);
  std::map<std::string, at::Tensor> parameters = model_parameters(*model);
  for (const auto& [name, copy] : tensors.base_copies) {
    if (!parameters.at(name).is_meta()) check_base_copy(copy, parameters.at(name), name, dir);
  }
  lora::inject_lora(sites, dir.lora, /*seed=*/0);
  for (lora::LinearSite& site : sites) copy_lora(site, tensors.lora.at(site.name));
  if (const auto embedding = tensors.lora.find(kEmbedding); embedding != tensors.lora.end()) {
    at::Tensor& table = parameters.at(kEmbedding + ".weight");
    table.set_data(lora::find_variant(dir.lora.variant)
                       .merged_oi(table.to(at::kFloat),
                                  on_device(embedding->second, table.device()),
                                  lora::lora_scale(dir.lora.of(kEmbedding))));
  }
  // Full fine-tuning needs FP32 master weights; the base's type would round them.
  for (const auto& [name, tensor] : tensors.full) {
    at::Tensor& parameter = parameters.at(name);
    if (const auto layer = stored.find(name); layer != stored.end()) {
      hold(layer->second, tensor);
    } else {
      parameter.set_data(tensor.to(parameter.device()));
    }
  }
}

}  // namespace lft::hf
