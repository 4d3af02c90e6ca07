// Merges merge x merge patches into one position of the decoder; in Qwen3-VL also into features for
// its first layers (DeepStack, Meng et al. 2024, arXiv 2406.04334). Shape letters: s patches, k
// positions.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "models/layers/linear.h"
#include "models/layers/stack.h"
#include "models/qwen_vl/vision.h"

namespace lft::qwen_vl {

/// The two layers of the merger before Qwen3-VL, named 0 and 2 as in checkpoints.
class MergerMlpImpl : public torch::nn::Module {
 public:
  MergerMlpImpl(const VisionConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x);
  layers::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(MergerMlp);

/// A norm and two linear layers.
class PatchMergerImpl : public torch::nn::Module {
 public:
  /// `after`: the norm is applied to merged patches instead of single ones.
  PatchMergerImpl(const VisionConfig& config, at::TensorOptions options, bool after);
  at::Tensor forward(const at::Tensor& x_sd);               // [k, out]
  layers::EitherNorm norm;                                  // "ln_q" before Qwen3-VL
  MergerMlp mlp{nullptr};                                   // before Qwen3-VL
  layers::Linear linear_fc1{nullptr}, linear_fc2{nullptr};  // Qwen3-VL only

 private:
  int64_t merged_;
  bool after_;
};
TORCH_MODULE(PatchMerger);

class ProjectorImpl : public torch::nn::Module {
 public:
  ProjectorImpl(const VisionConfig& config, at::TensorOptions options);
  /// Maps the states of the tower to the features of the decoder's positions, followed by those for
  /// its first layers: [k, out] each.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& states_sd);
  PatchMerger merger{nullptr};
  layers::Stack<PatchMerger> deepstack_merger_list;  // null before Qwen3-VL
};
TORCH_MODULE(Projector);

}  // namespace lft::qwen_vl
