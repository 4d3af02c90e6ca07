// The names of the adapter variants and a line about them, for who knows no torch.
#pragma once
#include <string>
#include <vector>

namespace lft::lora {

std::vector<std::string> variant_names();
/// "lora: ...; rslora: ...", one part a variant.
const std::string& variants_help();

}  // namespace lft::lora
