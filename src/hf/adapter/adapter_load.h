// An adapter's tensors: read, checked against a config, and loaded into a model.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/family/family.h"
#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// For a model of a base that went through untie(). Injects adapters at dir.lora_modules and copies
/// every tensor; any unused key, unfilled adapter or wrong shape is kInput with names.
void load_adapter(family::Model& model, const AdapterDir& dir);

/// An adapter's tensors in memory, float32 on the CPU.
struct AdapterTensors {
  std::map<std::string, lora::NamedTensors> lora;  // by canonical module
  std::map<std::string, at::Tensor> full;          // by canonical tensor
  /// Canonical tensors of the base and copies of them, which must equal the base's.
  std::vector<std::pair<std::string, at::Tensor>> base_copies;
};

/// Whether modules_to_save names a module that the tensor or module `path` (PEFT's name, without
/// its prefix) is part of: as PEFT does, by how names of modules end.
bool saves(const std::vector<std::string>& modules_to_save, const std::string& path);

/// Reads everything, for a base that went through untie(). Throws kInput for modules or tensors
/// that this model has not, wrong shapes, an incomplete module of modules_to_save, and non-finite
/// values.
AdapterTensors read_adapter(const AdapterDir& dir, const family::ModelConfig& config);

/// kInput unless the copy that the adapter holds of a base weight is that weight.
void check_base_copy(const at::Tensor& copy, const at::Tensor& base, const std::string& name,
                     const AdapterDir& dir);

}  // namespace lft::hf
