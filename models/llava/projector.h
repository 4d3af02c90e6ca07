// The two-layer MLP that maps vision features to the language model's embedding space (LLaVA-1.5's
// mlp2x_gelu).
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>

#include "models/layers/linear.h"
#include "models/llava/config.h"

namespace lft::llava {

class ProjectorImpl : public torch::nn::Module {
 public:
  ProjectorImpl(const family::ModelConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& features_npd);
  layers::Linear linear_1{nullptr}, linear_2{nullptr};

 private:
  std::string activation_;
};
TORCH_MODULE(Projector);

}  // namespace lft::llava
