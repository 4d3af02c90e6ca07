#include "models/lora/variant_names.h"

#include "models/lora/registry.h"

namespace lft::lora {

std::vector<std::string> variant_names() {
  std::vector<std::string> names;
  for (const Variant& variant : variants()) names.push_back(variant.name);
  return names;
}

const std::string& variants_help() {
  static const std::string text = [] {
    std::string parts;
    for (const Variant& variant : variants())
      parts += (parts.empty() ? "" : "; ") + variant.name + ": " + variant.help;
    return parts;
  }();
  return text;
}

}  // namespace lft::lora
