// What an adapter variant declares: its tensors and what PEFT's files call them, its scale, where
// it starts, how it merges, what it saves. A declaration only: the forward pass is a
// LinearAdapter's.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/layers/linear.h"

namespace lft::lora {

struct LoraOptions {
  std::string variant = "lora";
  int64_t rank = 128;
  double alpha = 256;
  double dropout = 0;
  /// Layers whose rank or alpha is another, by canonical name.
  struct Own {
    int64_t rank;
    double alpha;
    bool operator==(const Own&) const = default;
  };
  std::map<std::string, Own> own = {};
  /// Those of one layer, without `own`.
  LoraOptions of(const std::string& layer) const;
};

/// A float32 tensor that an adapter trains: a parameter of its LinearAdapter.
struct AdapterTensor {
  std::string name;    // of the parameter, "lora_A"
  std::string stored;  // after "<module>." in PEFT's file, "lora_A.weight"
  std::vector<int64_t> (*shape)(int64_t out, int64_t in, int64_t rank);
};
/// What every variant begins its list with.
std::vector<AdapterTensor> low_rank_tensors();

/// Tensors of one adapter by the names of its parameters. All but lora_A have a row an output.
using NamedTensors = std::map<std::string, at::Tensor>;
/// Those of outputs from `first` on.
NamedTensors output_rows(const NamedTensors& tensors, int64_t first, int64_t count);

/// What a pass over an adapter takes beside A, B and the low-rank product.
struct AdapterMemory {
  /// The layer's update is a low-rank one and nothing else (LinearAdapter::low_rank): layers of one
  /// input share work, A and B have copies for products, what a product reads is made again.
  bool low_rank_only = true;
  bool makes_weight = false;  // W + scale B A in float32, in each pass
  /// Elements of the compute dtype that a row of the input keeps for the backward pass. May be
  /// null: none.
  double (*kept)(double in, double out, bool drops) = nullptr;
};

struct Variant {
  std::string name;            // in a recipe
  std::string help;            // after the name, in the reference of lora.variant
  std::string note = {};       // after the rank in an adapter's README: " (DoRA)"
  std::string peft_flag = {};  // the key of adapter_config.json that is true, if there is one
  bool says_false = true;      // every PEFT knows the key, so that other variants write it as false
  /// begin() writes to the layer's weight, which must not be codes, and A and B as they begin stay
  /// in host memory for what is saved.
  bool changes_weight = false;
  std::vector<AdapterTensor> tensors = low_rank_tensors();
  double (*scale)(const LoraOptions& options) = nullptr;  // of B A
  /// Uninitialised; with exactly the parameters of `tensors`.
  std::shared_ptr<layers::LinearAdapter> (*make)(const layers::LinearImpl& layer,
                                                 const LoraOptions& options) = nullptr;
  /// Called with A drawn as LoRA's and B = 0, before the adapter sits in the layer. May be null:
  /// they stay, and there is no other tensor.
  void (*begin)(layers::LinearImpl& layer, layers::LinearAdapter& adapter) = nullptr;
  /// The weight that alone does what `weight_oi` (of the files) and stored tensors do together:
  /// float32 [out, in]. Row by row: rows of it are what output_rows() make of the same rows.
  at::Tensor (*merged_oi)(const at::Tensor& weight_oi, const NamedTensors& tensors,
                          double scale) = nullptr;
  /// What it adds to the layer's bias, float32 [out]. May be null: nothing.
  at::Tensor (*bias_shift_o)(const NamedTensors& tensors, double scale) = nullptr;
  AdapterMemory memory = {};
  /// As what an adapter is saved, for the weight as the files have it, and its tensors of that
  /// variant. May be null: as what it is.
  LoraOptions (*saved_as)(const LoraOptions& options) = nullptr;
  NamedTensors (*saved)(layers::LinearAdapter& adapter) = nullptr;
};

/// alpha / rank, without regard to `own`, as lora_scale().
double alpha_over_rank(const LoraOptions& options);
/// The scale that the options' variant gives them.
double lora_scale(const LoraOptions& options);
/// The options that an adapter of these is saved with.
LoraOptions saved_options(const LoraOptions& options);

}  // namespace lft::lora
