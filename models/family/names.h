// Canonical names, which are those of the module tree and independent of checkpoints and PEFT; and
// the lists of a model's tensors.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/family/scopes.h"
#include "models/llama/config.h"

namespace lft::family {

/// A parameter that a checkpoint must contain.
struct TensorSpec {
  std::string name;  // canonical
  std::vector<int64_t> shape;
};

/// Gathers the tensors of a model.
struct TensorList {
  std::vector<TensorSpec> tensors;
  void add(const std::string& name, std::vector<int64_t> shape);
  void linear(const std::string& module, int64_t in, int64_t out, bool bias);
  void layer_norm(const std::string& module, int64_t size);
  /// The layers of a CLIP or SigLIP tower; `root` precedes "encoder".
  void vision_layers(const std::string& root, int64_t hidden, int64_t inner, int64_t layers);
  /// language_model.model... and language_model.lm_head, the decoder of every family.
  void decoder(const llama::LlamaConfig& config);
};

/// Whether `name` is `head`, or starts with it and a dot; `rest` is then what follows the dot.
bool strip(std::string_view name, std::string_view head, std::string_view* rest);
/// `head`, followed by a dot and `rest` unless that is empty.
std::string joined(std::string_view head, std::string_view rest);

}  // namespace lft::family
