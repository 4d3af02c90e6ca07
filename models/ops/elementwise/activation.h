// Elementwise activations: one pass each, in float32 maths. Only the input is saved for the
// backward pass.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>

#include "models/ops/core/dropout_mask.h"

namespace lft::ops {

/// The activation of the gate of an MLP: SiLU (Llama), GELU in its tanh form (Gemma).
enum class Gate { kSilu, kGelu };

/// act(gate) * up, without a graph: linear_gated (linear.h) differentiates it by hand.
at::Tensor gated_values(const at::Tensor& gate, const at::Tensor& up, Gate kind = Gate::kSilu);
/// gated_values() before and after dropout() (dropout.h), both with the shape and dtype of gate;
/// one pass if there is a kernel. y is undefined unless `whole`. Without a graph.
struct DroppedGated {
  at::Tensor y, dropped;
};
DroppedGated gated_dropout(const at::Tensor& gate, const at::Tensor& up, const DropoutMask& mask,
                           bool whole, Gate kind = Gate::kSilu);
/// The gradients of gate and up, given that of the product. With `product` also the product itself,
/// which a kernel computes in the same pass.
struct GatedGradients {
  at::Tensor gate, up, product;
};
GatedGradients gated_gradients(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                               Gate kind = Gate::kSilu, bool product = false);
/// act(gate) * up, differentiable; keeps gate and up.
at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, Gate kind = Gate::kSilu);
/// x * sigmoid(1.702 x).
at::Tensor quick_gelu(const at::Tensor& x);

/// By the name in config.json: gelu, quick_gelu, gelu_new, gelu_pytorch_tanh, relu, silu.
bool is_activation(const std::string& name);
at::Tensor activation(const std::string& name, const at::Tensor& x);

}  // namespace lft::ops
