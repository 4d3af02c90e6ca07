// The update of each weight by an adapter, and the comparison of two adapters: an export is
// verified with it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "models/lora/inject.h"

namespace lft::hf {

/// Modules with their tensors (float32 on the CPU), and the options of these.
struct Updates {
  lora::LoraOptions lora;
  std::map<std::string, lora::NamedTensors> tensors;
};

std::vector<std::string> modules_of(const Updates& updates);
/// The same updates as plain LoRA with alpha = r, the largest rank r: every B is multiplied by its
/// scale, A and B are padded with zeros. Only for variants of A and B alone.
Updates baked(const Updates& updates);

/// Throws kInternal, naming `where`, unless both have the same modules and equal updates up to
/// float32 rounding. Returns the largest difference relative to the largest element.
double compare_updates(const Updates& want, const Updates& got, const std::string& where);

}  // namespace lft::hf
