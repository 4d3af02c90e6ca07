// An adapter's tensors: read, checked against a config, and loaded into a model.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/family/family.h"
#include "src/hf/adapter/adapter.h"

namespace lft::hf {

/// Injects adapters at dir.lora_modules and copies every tensor, into a model whose base went
/// through untie(). An unused key, an unfilled adapter or a wrong shape is kInput with names.
void load_adapter(family::Model& model, const AdapterDir& dir);

/// An adapter's tensors in memory, float32 on the CPU.
struct AdapterTensors {
  std::map<std::string, lora::NamedTensors> lora;  // by canonical module
  std::map<std::string, at::Tensor> full;          // by canonical tensor
  /// Canonical names of base tensors, and copies of them, which must equal the base.
  std::vector<std::pair<std::string, at::Tensor>> base_copies;
};

/// Whether modules_to_save names a module that contains the tensor or module `path` (its name in
/// PEFT, without the prefix): compared by the ends of module names, as in PEFT.
bool saves(const std::vector<std::string>& modules_to_save, const std::string& path);

/// Reads all tensors, for a base that went through untie(). Throws kInput for modules or tensors
/// that the model does not have, wrong shapes, an incomplete module of modules_to_save, and
/// non-finite values.
AdapterTensors read_adapter(const AdapterDir& dir, const family::ModelConfig& config);

/// Throws kInput unless the adapter's copy of a base weight equals it.
void check_base_copy(const at::Tensor& copy, const at::Tensor& base, const std::string& name,
                     const AdapterDir& dir);

}  // namespace lft::hf
