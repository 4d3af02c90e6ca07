// The MLP of Llama: down(act(gate(x)) * up(x)).
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "models/layers/linear.h"
#include "models/llama/config.h"
#include "models/ops/elementwise/rms_norm.h"

namespace lft::llama {

class LlamaMlpImpl : public torch::nn::Module {
 public:
  LlamaMlpImpl(const LlamaConfig& config, int64_t intermediate, at::TensorOptions linear_options);
  at::Tensor forward(const ops::Normed& x);
  layers::Linear gate_proj{nullptr}, up_proj{nullptr}, down_proj{nullptr};

 private:
  ops::Gate gate_;
};
TORCH_MODULE(LlamaMlp);

}  // namespace lft::llama
