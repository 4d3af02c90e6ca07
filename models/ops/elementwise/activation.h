// Elementwise activations in one pass each, in float32 maths, with the input kept and nothing else.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>

#include "models/ops/core/cpu_loops.h"

namespace lft::ops {

/// silu(gate) * up, without a graph: linear_swiglu (linear.h) differentiates it by hand.
at::Tensor swiglu_values(const at::Tensor& gate, const at::Tensor& up);
/// swiglu_values() and what dropout() (dropout.h) leaves of it, both of gate's shape and dtype; in
/// one pass where there is a kernel. y is undefined unless `whole`. Without a graph.
struct DroppedSwiglu {
  at::Tensor y, dropped;
};
DroppedSwiglu swiglu_dropout(const at::Tensor& gate, const at::Tensor& up,
                             const loops::DropoutMask& mask, bool whole);
/// Gradients of gate and up, given that of the product.
std::pair<at::Tensor, at::Tensor> swiglu_gradients(const at::Tensor& dy, const at::Tensor& gate,
                                                   const at::Tensor& up);
/// silu(gate) * up, differentiable; keeps gate and up.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// x * sigmoid(1.702 x).
at::Tensor quick_gelu(const at::Tensor& x);

/// By the name config.json uses: gelu, quick_gelu, gelu_new, gelu_pytorch_tanh, relu, silu.
bool is_activation(const std::string& name);
at::Tensor activation(const std::string& name, const at::Tensor& x);

}  // namespace lft::ops
