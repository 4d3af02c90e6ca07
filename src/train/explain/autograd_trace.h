// A failed pass once more, under watch: which op or graph node threw, in which module, what changed
// tensors in place, where the graph was cut. For explaining an error (autograd_errors.h); far too
// slow for training.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <string>

namespace torch::autograd {
struct Node;
}

namespace lft::train {

/// "MulBackward0"; "LinearFunction" for "torch::autograd::CppNode<lft::(anonymous
/// namespace)::LinearFunction>".
std::string graph_node_name(const torch::autograd::Node& node);

struct PassTrace {
  bool failed = false;    // it failed again
  bool backward = false;  // in the backward pass
  std::string error;      // in LibTorch's words
  std::string
      maker;  // what threw: "aten::mul_", or the graph node "MulBackward0"; empty: outside of any
  std::string module;      // in which module that ran, or was made; empty: outside of any
  std::string parameter;   // that the op which threw was to change; empty: none
  std::string changed_by;  // "aten::mul_ in <module>": what changed the saved tensor in place;
                           // empty: unknown, or not that error
  std::string
      cut_in;  // first module with a graph or a trainable before it and none after; empty: none
  bool graph_off = false;  // no graph was recorded there (at::NoGradGuard)
};

/// Runs loss() and differentiates it. Gradients are dropped; whatever is thrown is caught. The
/// hooks it puts into a graph outlive it and do nothing then.
PassTrace trace_pass(const torch::nn::Module& model, const std::function<at::Tensor()>& loss);

}  // namespace lft::train
