#include "models/lora/registry.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "models/lora/dora.h"
#include "models/lora/lora.h"
#include "models/lora/lora_bias.h"
#include "models/lora/pissa.h"

namespace lft::lora {

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {
      lora_variant(), rslora_variant(), dora_variant(), pissa_variant(), lora_bias_variant(),
  };
  return all;
}

const Variant& find_variant(const std::string& name) {
  std::string known;
  for (const Variant& variant : variants()) {
    if (variant.name == name) return variant;
    known += (known.empty() ? "" : ", ") + variant.name;
  }
  throw Error(ErrorKind::kUsage, {.what = "unknown adapter variant",
                                  .where = "lora.variant",
                                  .found = name,
                                  .expected = known,
                                  .next = {}});
}

const std::vector<AdapterTensor>& adapter_tensors() {
  static const std::vector<AdapterTensor> all = [] {
    std::vector<AdapterTensor> tensors;
    for (const Variant& variant : variants()) {
      for (const AdapterTensor& tensor : variant.tensors) {
        const bool known = std::any_of(tensors.begin(), tensors.end(), [&](const auto& other) {
          return other.name == tensor.name;
        });
        if (!known) tensors.push_back(tensor);
      }
    }
    return tensors;
  }();
  return all;
}

std::vector<AdapterTensor> further_tensors(const Variant& variant) {
  std::vector<AdapterTensor> further = variant.tensors;
  further.erase(further.begin(), further.begin() + 2);
  return further;
}

}  // namespace lft::lora
