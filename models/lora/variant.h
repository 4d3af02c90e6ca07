// The declaration of an adapter variant: its tensors and their names in PEFT's files, scale,
// initialisation, merge and saved form. The forward pass is in its LinearAdapter.
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
  /// Ranks and alphas of single layers, by canonical name.
  struct Own {
    int64_t rank;
    double alpha;
    bool operator==(const Own&) const = default;
  };
  std::map<std::string, Own> own = {};
  /// The options of one layer, without `own`.
  LoraOptions of(const std::string& layer) const;
};

/// A float32 tensor that an adapter trains, a parameter of its LinearAdapter.
struct AdapterTensor {
  std::string name;    // name of the parameter, "lora_A"
  std::string stored;  // suffix of "<module>." in PEFT's file, "lora_A.weight"
  std::vector<int64_t> (*shape)(int64_t out, int64_t in, int64_t rank);
};
/// The shape for a layer [out, in]; for experts, whose A's are one below the other, as their B's
/// are, out is that of all.
std::vector<int64_t> shape_of(const AdapterTensor& tensor, at::IntArrayRef shape_oi, int64_t rank,
                              int64_t experts);
/// A and B, which are the first tensors of every variant.
std::vector<AdapterTensor> low_rank_tensors();

/// The tensors of one adapter by parameter name. All but lora_A have one row per output.
using NamedTensors = std::map<std::string, at::Tensor>;
/// The A and B of one of the experts.
NamedTensors expert_tensors(const NamedTensors& tensors, int64_t expert, int64_t experts);
/// The tensors of `count` outputs from `first` on.
NamedTensors output_rows(const NamedTensors& tensors, int64_t first, int64_t count);

/// Memory of a pass over an adapter in addition to A, B and the low-rank product.
struct AdapterMemory {
  /// The update is low-rank and nothing else (LinearAdapter::low_rank): layers with the same input
  /// share work, products use copies of A and B, and their inputs are recomputed.
  bool low_rank_only = true;
  /// The length of each row of W + scale B A is kept from pass to pass, in float32.
  bool keeps_lengths = false;
  /// Elements of W + scale B A that are computed in float32 at a time. Null: none.
  double (*widened)(double in, double out, bool gpu) = nullptr;
  /// Elements of the compute dtype that are saved per row of the input for the backward pass. Null:
  /// none.
  double (*kept)(double in, double out, bool drops) = nullptr;
};

struct Variant {
  std::string name;            // name in a recipe
  std::string help;            // after the name, in the reference of lora.variant
  std::string note = {};       // after the rank in an adapter's README: " (DoRA)"
  std::string peft_flag = {};  // the key of adapter_config.json that is true, if any
  bool says_false = true;      // every PEFT version has the key; other variants write false
  /// begin() changes the weight of the layer, which must not be quantized; the initial A and B are
  /// kept in host memory for saving.
  bool changes_weight = false;
  std::vector<AdapterTensor> tensors = low_rank_tensors();
  double (*scale)(const LoraOptions& options) = nullptr;  // the factor of B A
  /// Creates an uninitialised adapter; with exactly the parameters of `tensors`.
  std::shared_ptr<layers::LinearAdapter> (*make)(const layers::LinearImpl& layer,
                                                 const LoraOptions& options) = nullptr;
  /// Called with A initialised as in LoRA and B = 0, before the adapter is in the layer. Null:
  /// nothing changes, and there are no other tensors.
  void (*begin)(layers::LinearImpl& layer, layers::LinearAdapter& adapter) = nullptr;
  /// The merged weight of `weight_oi` (of the files) and the stored tensors: float32 [out, in].
  /// Rows are independent: the merge of rows with output_rows() of the tensors gives rows of the
  /// merge.
  at::Tensor (*merged_oi)(const at::Tensor& weight_oi, const NamedTensors& tensors,
                          double scale) = nullptr;
  /// The change of the bias of the layer, float32 [out]. Null: none.
  at::Tensor (*bias_shift_o)(const NamedTensors& tensors, double scale) = nullptr;
  AdapterMemory memory = {};
  /// The options and tensors with which an adapter is saved, if that is another variant; they are
  /// for the weight in the files. Null: unchanged.
  LoraOptions (*saved_as)(const LoraOptions& options) = nullptr;
  NamedTensors (*saved)(layers::LinearAdapter& adapter) = nullptr;
};

/// alpha / rank, ignoring `own`, like lora_scale().
double alpha_over_rank(const LoraOptions& options);
/// The scale of the variant of the options.
double lora_scale(const LoraOptions& options);
/// The options with which such an adapter is saved.
LoraOptions saved_options(const LoraOptions& options);

}  // namespace lft::lora
