// An MLP of experts (Shazeer et al. 2017, in the form of Qwen3): a router chooses k experts for
// each token, and their outputs are added with the router's probabilities as weights. In Qwen3.5 a
// shared expert with a gate computes every token. Shape letters: t tokens, d hidden, e experts, k
// experts of a token.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "models/layers/expert_linear.h"
#include "models/layers/linear.h"
#include "models/layers/routing.h"
#include "models/llama/config.h"
#include "models/llama/mlp.h"
#include "models/ops/elementwise/rms_norm.h"

namespace lft::llama {

/// The experts of each token and their shares, which are the probabilities of these experts over
/// their sum.
struct Choice {
  at::Tensor experts_tk;  // int64, by falling probability
  at::Tensor shares_tk;   // compute_dtype()
};

/// A linear layer without an adapter, and a softmax in float32.
class RouterImpl : public torch::nn::Module {
 public:
  RouterImpl(const LlamaConfig& config, at::TensorOptions options);
  /// `routing`: records the pass; may be null, here and below.
  Choice forward(const at::Tensor& x_td, const layers::RoutingPtr& routing = {});
  at::Tensor weight;  // [e, d]

 private:
  int64_t per_token_;
};
TORCH_MODULE(Router);

class ExpertsImpl : public torch::nn::Module {
 public:
  ExpertsImpl(const LlamaConfig& config, at::TensorOptions linear_options);
  at::Tensor forward(const at::Tensor& x_td, const Choice& choice,
                     const layers::RoutingPtr& routing = {});
  layers::ExpertLinear gate_up_proj{nullptr}, down_proj{nullptr};
};
TORCH_MODULE(Experts);

class SparseMlpImpl : public torch::nn::Module {
 public:
  SparseMlpImpl(const LlamaConfig& config, at::TensorOptions options,
                at::TensorOptions linear_options);
  at::Tensor forward(const ops::Normed& x, const layers::RoutingPtr& routing = {});
  Router gate{nullptr};
  Experts experts{nullptr};
  LlamaMlp shared_expert{nullptr};             // null if the config has none
  layers::Linear shared_expert_gate{nullptr};  // the same
};
TORCH_MODULE(SparseMlp);

}  // namespace lft::llama
