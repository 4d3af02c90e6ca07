// What an adapter adds to each weight, and whether another adds the same: how an export is proven.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "models/lora/inject.h"

namespace lft::hf {

/// Modules with their tensors (float32 on the CPU), and what these are.
struct Updates {
  lora::LoraOptions lora;
  std::map<std::string, lora::NamedTensors> tensors;
};

std::vector<std::string> modules_of(const Updates& updates);
/// The same updates by plain LoRA with alpha = r, r the largest rank: each B times its scale, A and
/// B filled up with zeros. Of a variant of A and B alone.
Updates baked(const Updates& updates);

/// kInternal, naming `where`, unless both have the same modules and add the same to each weight, up
/// to a rounding of float32. Returns the largest difference relative to the largest element.
double compare_updates(const Updates& want, const Updates& got, const std::string& where);

}  // namespace lft::hf
