// The names of the adapter variants and their help text, without a torch dependency.
#pragma once
#include <string>
#include <vector>

namespace lft::lora {

std::vector<std::string> variant_names();
/// "lora: ...; rslora: ...", one part per variant.
const std::string& variants_help();

}  // namespace lft::lora
