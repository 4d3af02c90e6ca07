#include "src/train/memory/memory_layers.h"

#include <algorithm>

#include "kernels/nf4/nf4.h"
#include "src/train/inputs/init_adapter.h"

namespace lft::train {
namespace {

/// Bytes of a quantized weight [out, in], or of those of experts, whose rows together are `out`.
double bytes_of_codes(ops::BaseStorage storage, double out, double in, double experts) {
  if (storage == ops::BaseStorage::kFp8) return 2 * out * in + 4 * (out + in * experts);
  return out * in * (0.5 + 1.0 / kNf4Block + 4.0 / (kNf4Block * kNf4ScaleBlock));
}

double experts_of(const family::ModelConfig& config, const std::string& parameter) {
  return config.family->names.is_expert_weight(parameter)
             ? static_cast<double>(config.text.experts.count)
             : 1;
}

}  // namespace

Trains::Trains(const RunSettings& settings)
    : recipe(settings.recipe),
      shapes(shape_only(settings.config)),
      layout(family::read_layout(*shapes)) {
  const std::vector<lora::LinearSite> sites = adapted_sites(recipe, *shapes, nullptr);
  options = lora_options(recipe, sites);
  for (const lora::LinearSite& site : sites) {
    const bool never_runs = std::ranges::any_of(
        layout.unused_modules,
        [&](const std::string& module) { return site.name.starts_with(module + "."); });
    if (never_runs) continue;  // its adapter exists but has no effect
    adapted_names.insert(site.name);
    for (const lora::AdapterTensor& tensor : variant.tensors) {
      trainables.emplace_back(site.name + "." + tensor.name,
                              shape_of(tensor, site.layer->weight.sizes(),
                                       options.of(site.name).rank, site.layer->experts));
    }
  }
  for (const auto& parameter : shapes->named_parameters()) {
    const at::Tensor& tensor = parameter.value();
    const auto elements = static_cast<double>(tensor.numel());
    base.frozen += elements;
    if (in_decoder_layer(parameter.key()) && tensor.dim() == 2) {
      const bool coded = settings.storage != ops::BaseStorage::kDense;
      const double bytes =
          coded ? bytes_of_codes(settings.storage, static_cast<double>(tensor.size(0)),
                                 static_cast<double>(tensor.size(1)),
                                 experts_of(settings.config, parameter.key()))
                : elements * static_cast<double>(c10::elementSize(settings.base_dtype));
      base.layer_bytes += bytes;
      if (coded) base.coded += elements, base.coded_bytes += bytes;
    }
    if (whole(parameter.key())) trainables.emplace_back(parameter.key(), tensor.sizes().vec());
  }
}

double Trains::elements_under(const std::string& prefix) const {
  double sum = 0;
  for (const auto& [name, sizes] : trainables)
    sum += name.starts_with(prefix) ? static_cast<double>(c10::multiply_integers(sizes)) : 0;
  return sum;
}

double weight_copy(const Counting& c, const Layer& layer) {
  const double elements = layer.in * layer.out, compute = c.types.compute;
  if (c.in_fp8(layer.name)) return c.fp8_products ? 0 : elements * 4;
  const bool whole = c.trains.whole(layer.name), coded = c.coded(layer.name);
  double lengths = 0;
  if (c.trains.adapter.widened != nullptr && c.trains.adapted(layer.name)) {
    lengths =
        4 * c.trains.adapter.widened(layer.in, layer.out, c.types.gpu) + (coded ? 4 * elements : 0);
  }
  const bool casts = whole ? compute != 4 : coded || c.types.casts;
  return std::max(lengths, elements * ((casts ? compute : 0) + (c.types.widens ? 4 : 0)));
}

double variant_keeps(const Counting& c, const Layer& layer, double rows) {
  const lora::AdapterMemory& adapter = c.trains.adapter;
  if (adapter.kept == nullptr || !c.trains.adapted(layer.name)) return 0;
  return rows * c.types.compute * adapter.kept(layer.in, layer.out, c.trains.drops());
}

double adapter_keeps(const Counting& c, const Layer& layer, double rows) {
  const double product =
      c.trains.adapted(layer.name)
          ? rows * static_cast<double>(c.trains.options.of(layer.name).rank) * c.types.compute
          : 0;
  return product + variant_keeps(c, layer, rows);
}

}  // namespace lft::train
