// What makes one position of the decoder of merge x merge patches, and of Qwen3-VL the features for
// its first decoder layers (DeepStack, Meng et al. 2024, arXiv 2406.04334). Shape letters: s
// patches, k positions.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "models/layers/linear.h"
#include "models/layers/stack.h"
#include "models/qwen_vl/vision.h"

namespace lft::qwen_vl {

/// Qwen2.5-VL's two layers, with the names that its checkpoints give them: 0 and 2.
class MergerMlpImpl : public torch::nn::Module {
 public:
  MergerMlpImpl(const VisionConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x);
  layers::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(MergerMlp);

/// A norm and two layers.
class PatchMergerImpl : public torch::nn::Module {
 public:
  /// `after`: the norm is of the patches merged, not of each.
  PatchMergerImpl(const VisionConfig& config, at::TensorOptions options, bool after);
  at::Tensor forward(const at::Tensor& x_sd);               // [k, out]
  VisionNorm norm;                                          // "ln_q" in Qwen2.5-VL
  MergerMlp mlp{nullptr};                                   // of Qwen2.5-VL
  layers::Linear linear_fc1{nullptr}, linear_fc2{nullptr};  // of Qwen3-VL

 private:
  int64_t merged_;
  bool after_;
};
TORCH_MODULE(PatchMerger);

class ProjectorImpl : public torch::nn::Module {
 public:
  ProjectorImpl(const VisionConfig& config, at::TensorOptions options);
  /// The tower's states -> the features of the decoder's positions, and after them those for its
  /// first layers: [k, out] each.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& states_sd);
  PatchMerger merger{nullptr};
  layers::Stack<PatchMerger> deepstack_merger_list;  // null where there is none
};
TORCH_MODULE(Projector);

}  // namespace lft::qwen_vl
