// Canonical names: of modules and tensors in the module tree, whatever a checkpoint or PEFT call
// them. What the families' lists of names share.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/family/scopes.h"
#include "models/llama/config.h"

namespace lft::family {

/// A parameter a checkpoint must hold, known before any is allocated.
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
  /// The layers of CLIP and SigLIP towers, `root` before "encoder".
  void vision_layers(const std::string& root, int64_t hidden, int64_t inner, int64_t layers);
  /// language_model.model... and language_model.lm_head, which every family's decoder has.
  void decoder(const llama::LlamaConfig& config);
};

/// Of a model whose parts lie as LLaVA's: "vision_tower", "multi_modal_projector" and
/// "language_model" on disk, which are the canonical names; in the memory of transformers from 4.52
/// on below "model", with the head beside it. From any spelling; "" for what none of them is.
std::string canonical_of_parts(std::string_view name);
/// Family::peft_name() and Family::whole_name() of such a model.
std::string peft_name_of_parts(const std::string& canonical);
std::string whole_name_of_parts(const std::string& canonical);

/// Whether `name` is `head`, or starts with it and a dot; then `rest` is what follows the dot.
bool strip(std::string_view name, std::string_view head, std::string_view* rest);
/// `head`, and after a dot `rest` where there is one.
std::string joined(std::string_view head, std::string_view rest);

}  // namespace lft::family
