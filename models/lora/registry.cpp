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

std::vector<AdapterTensor> low_rank_tensors() {
  using Shape = std::vector<int64_t>;
  return {{.name = "lora_A",
           .stored = "lora_A.weight",
           .shape =
               [](int64_t, int64_t in, int64_t rank) {
                 return Shape{rank, in};
               }},
          {.name = "lora_B",
           .stored = "lora_B.weight",
           .shape = [](int64_t out, int64_t, int64_t rank) {
             return Shape{out, rank};
           }}};
}

double alpha_over_rank(const LoraOptions& options) {
  return options.alpha / static_cast<double>(options.rank);
}

NamedTensors output_rows(const NamedTensors& tensors, int64_t first, int64_t count) {
  NamedTensors rows = tensors;
  for (auto& [name, tensor] : rows) {
    if (name != "lora_A") tensor = tensor.narrow(0, first, count);
  }
  return rows;
}

double lora_scale(const LoraOptions& options) {
  return find_variant(options.variant).scale(options);
}

LoraOptions LoraOptions::of(const std::string& layer) const {
  LoraOptions one{.variant = variant, .rank = rank, .alpha = alpha, .dropout = dropout};
  if (const auto at = own.find(layer); at != own.end()) {
    one.rank = at->second.rank;
    one.alpha = at->second.alpha;
  }
  return one;
}

LoraOptions saved_options(const LoraOptions& options) {
  const Variant& variant = find_variant(options.variant);
  if (variant.saved_as == nullptr) return options;
  LoraOptions saved = variant.saved_as(options);
  for (const auto& [layer, own] : options.own) {
    const LoraOptions one = variant.saved_as(options.of(layer));
    saved.own[layer] = {.rank = one.rank, .alpha = one.alpha};
  }
  return saved;
}

}  // namespace lft::lora
