// Trained tensors by the module they belong to: an adapter's A and B, or the tensors of a module
// that is trained whole.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "models/lora/inject.h"

namespace lft::lora {

/// How the names of an adapter's matrices end, and of the bias of B.
constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight",
                           kLoraBBias = ".lora_B.bias";

/// A module's tensors by their places among the trainables.
struct TrainedModule {
  std::string name;
  std::vector<size_t> members;
  size_t a = SIZE_MAX, b = SIZE_MAX;  // of an adapter
  bool adapter() const { return a != SIZE_MAX && b != SIZE_MAX; }
};
/// In the order of their first tensors.
std::vector<TrainedModule> trained_modules(const std::vector<Trainable>& trainables);

/// The module of a trained tensor's name, "a.q_proj" of "a.q_proj.lora_A.weight".
std::string module_of(std::string tensor);

}  // namespace lft::lora
