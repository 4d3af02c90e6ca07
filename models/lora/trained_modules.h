// Trained tensors grouped by module: A and B of an adapter, or the tensors of a fully fine-tuned
// module.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "models/lora/inject.h"

namespace lft::lora {

/// Suffixes of the names of the matrices of an adapter, and of the bias of B.
constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight",
                           kLoraBBias = ".lora_B.bias";

/// The tensors of a module, as indices into the trainables.
struct TrainedModule {
  std::string name;
  std::vector<size_t> members;
  size_t a = SIZE_MAX, b = SIZE_MAX;  // the adapter's
  bool adapter() const { return a != SIZE_MAX && b != SIZE_MAX; }
};
/// The modules in the order of their first tensors.
std::vector<TrainedModule> trained_modules(const std::vector<Trainable>& trainables);

/// The module part of the name of a trained tensor, "a.q_proj" of "a.q_proj.lora_A.weight".
std::string module_of(std::string tensor);

}  // namespace lft::lora
