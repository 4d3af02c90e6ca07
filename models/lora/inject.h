// Puts adapters into linear layers by scoped name pattern, and lists what is trainable. Knows
// module names, no model family's maths.
#pragma once
#include <torch/nn/module.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/linear.h"
#include "models/lora/variant.h"

namespace lft::lora {

/// A linear layer that an adapter may sit in. Names are the canonical on-disk ones,
/// "language_model.model.layers.0.self_attn.q_proj".
struct LinearSite {
  std::string name, scope;  // scope: llm, projector, vision
  layers::Linear layer{nullptr};
};

/// llm, projector or vision: where a canonical name belongs.
std::string scope_of(const std::string& canonical);

/// Adapters with A ~ kaiming_uniform(a = sqrt(5)) as PEFT does, B = 0, FP32, and then as their
/// variant begins, so that no output changes. A of site i is a pure function of (seed, site name).
/// Throws kUsage unless 1 <= rank <= min(in, out) of every site, of the rank that is saved, too.
void inject_lora(const std::vector<LinearSite>& sites, const LoraOptions& options, uint64_t seed);

/// A trainable tensor: an FP32 master with requires_grad. `name` is canonical:
/// "<module>." and how the variant's tensor is stored, as in "<module>.lora_A.weight", or the
/// parameter's own name for a whole-trained module.
/// `shadow`: the copy that products take, where they take one; may be null.
struct Trainable {
  std::string name, scope;
  at::Tensor tensor;
  ops::ShadowPtr shadow = {};
  bool embedding = false;  // the table of a layers::Embedding
};
/// The names of the parameters that are tables of embeddings (nn.Embedding of PyTorch).
std::set<std::string> embedding_tables(const torch::nn::Module& model);

/// Freezes everything, then makes trainable the adapters and the scopes in `full` (llm, projector,
/// vision, all), whose parameters become FP32 masters. Throws kUsage for an unknown scope. Order is
/// deterministic (module order).
std::vector<Trainable> make_trainable(torch::nn::Module& model,
                                      const std::vector<std::string>& full);

/// Keeps the copies of A and B that products in `dtype` take, for adapters that are not trained;
/// those of layers beside each other lie so, too.
void keep_shadows(const torch::nn::Module& model, at::ScalarType dtype);

/// W and its adapter in FP32, one cast to W's dtype; adapters removed.
void merge_adapters(torch::nn::Module& model);

}  // namespace lft::lora
