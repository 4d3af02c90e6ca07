#include "models/lora/variant.h"

#include <ATen/core/Tensor.h>

#include "models/lora/registry.h"
#include "models/ops/weight/expert_weight.h"

namespace lft::lora {

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

std::vector<int64_t> shape_of(const AdapterTensor& tensor, at::IntArrayRef shape_oi, int64_t rank,
                              int64_t experts) {
  std::vector<int64_t> shape = tensor.shape(shape_oi[0], shape_oi[1], rank);
  if (experts > 0 && tensor.name == "lora_A") shape[0] *= experts;
  return shape;
}

NamedTensors expert_tensors(const NamedTensors& tensors, int64_t expert, int64_t experts) {
  NamedTensors own = tensors;
  for (auto& [name, tensor] : own) tensor = ops::expert_rows(tensor, expert, experts);
  return own;
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
