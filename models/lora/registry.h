// All adapter variants by their names in a recipe. A new variant needs its file pair and one line
// in registry.cpp.
#pragma once
#include <string>
#include <vector>

#include "models/lora/variant.h"
#include "models/lora/variant_names.h"

namespace lft::lora {

/// In the order of registration: plain LoRA first.
const std::vector<Variant>& variants();
/// Throws kUsage for an unknown variant and lists the known ones.
const Variant& find_variant(const std::string& name);
/// The tensors of all variants, each name once.
const std::vector<AdapterTensor>& adapter_tensors();
/// The tensors of the variant other than A and B.
std::vector<AdapterTensor> further_tensors(const Variant& variant);

}  // namespace lft::lora
