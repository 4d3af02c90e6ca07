// Injects adapters into linear layers, and lists the trainable tensors. Uses names of modules only,
// no model code.
#pragma once
#include <torch/nn/module.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/linear.h"
#include "models/lora/variant.h"

namespace lft::lora {

/// A linear layer that may get an adapter. Names are canonical,
/// "language_model.model.layers.0.self_attn.q_proj".
struct LinearSite {
  std::string name, scope;  // scope: llm, projector, vision
  layers::Linear layer{nullptr};
};

/// The scope of a canonical name: llm, projector or vision.
std::string scope_of(const std::string& canonical);

/// Injects adapters with A ~ kaiming_uniform(a = sqrt(5)) as in PEFT and B = 0, in FP32, and then
/// runs the initialisation of their variant; the output of the model does not change. A of site i
/// is a pure function of (seed, site name). Throws kUsage unless 1 <= rank <= max(in, out) for
/// every site, or min(in, out) if the variant changes the weight; also for the rank that is saved.
void inject_lora(const std::vector<LinearSite>& sites, const LoraOptions& options, uint64_t seed);

/// A trainable tensor: an FP32 master weight with requires_grad. `name` is canonical: "<module>."
/// and the stored name of the variant's tensor, "<module>.lora_A.weight", or the parameter's own
/// name in a fully fine-tuned module. `shadow`: the low-precision copy that products use; may be
/// null.
struct Trainable {
  std::string name, scope;
  at::Tensor tensor;
  ops::ShadowPtr shadow = {};
  bool embedding = false;  // the table of a layers::Embedding
};
/// The names of the parameters that are embedding tables (nn.Embedding in PyTorch).
std::set<std::string> embedding_tables(const torch::nn::Module& model);

/// Freezes everything, then makes the adapters and the scopes in `full` (llm, projector, vision,
/// all) trainable; the parameters of those become FP32 masters. Throws kUsage for an unknown scope.
/// The order is that of the modules.
std::vector<Trainable> make_trainable(torch::nn::Module& model,
                                      const std::vector<std::string>& full);

/// Allocates the low-precision copies of A and B for products in `dtype`, for adapters that are not
/// trained. Those of layers that share an input are contiguous.
void keep_shadows(const torch::nn::Module& model, at::ScalarType dtype);

/// Merges the adapters into their weights in FP32 with one cast to the dtype of the weight, and
/// removes them.
void merge_adapters(torch::nn::Module& model);

}  // namespace lft::lora
