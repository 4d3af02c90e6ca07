// The layers of a model while the memory of a pass is counted: which are trained or adapted, and
// the bytes that each needs besides its input.
#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/family/model.h"
#include "models/lora/registry.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/memory/memory_units.h"

namespace lft::train {

/// The trained parts of a model, by name.
struct Trains {
  explicit Trains(const RunSettings& settings);
  bool whole(const std::string& name) const { return trains_whole(recipe, name); }
  bool adapted(const std::string& name) const { return adapted_names.contains(name); }
  bool keeps_input(const std::string& name) const { return whole(name) || adapted(name); }
  /// Elements of the trainables whose names have this prefix.
  double elements_under(const std::string& prefix) const;
  bool drops() const { return recipe.lora.dropout > 0; }

  const recipe::Recipe& recipe;
  const lora::Variant& variant = lora::find_variant(recipe.lora.variant);
  const lora::AdapterMemory& adapter = variant.memory;
  family::Model shapes;
  family::ModelLayout layout;
  lora::LoraOptions options;
  std::set<std::string> adapted_names;
  /// An adapter's parameters, or a fully trained parameter, with shapes.
  std::vector<std::pair<std::string, std::vector<int64_t>>> trainables;
  TrainedSize base;  // without adapters, as if all were frozen
};

struct Counting {
  const family::ModelConfig& config;
  const Trains& trains;
  PassTypes types;
  PassShape shape;
  int64_t every = 0;  // blocks recomputed
  ops::BaseStorage storage = ops::BaseStorage::kDense;
  bool fp8_products = false;  // of the device

  bool coded(const std::string& name) const {
    return storage != ops::BaseStorage::kDense && in_decoder_layer(name);
  }
  bool in_fp8(const std::string& name) const {
    return storage == ops::BaseStorage::kFp8 && in_decoder_layer(name) && types.compute == 2;
  }
};

/// A linear layer.
struct Layer {
  std::string name;
  double in = 0, out = 0;
};

/// Bytes of the weight's copy in the compute dtype, if it is stored in another. If products are
/// computed in float32 both operands are converted, as are those of FP8 weights on a device without
/// FP8 products.
double weight_copy(const Counting& c, const Layer& layer);
/// Memory kept by an adapter for its backward pass besides the input and the low-rank product.
double variant_keeps(const Counting& c, const Layer& layer, double rows);
/// Memory kept besides the input.
double adapter_keeps(const Counting& c, const Layer& layer, double rows);

}  // namespace lft::train
