// Repeats a failed pass under observation: which op or graph node threw, in which module, what
// changed tensors in place, and where the graph was cut. Only for explaining an error
// (autograd_errors.h); much too slow for training.
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
  bool failed = false;    // the repetition failed, too
  bool backward = false;  // in the backward pass
  std::string error;      // LibTorch's message
  std::string maker;   // what threw: "aten::mul_", or the graph node "MulBackward0"; empty: neither
  std::string module;  // in which module it ran or was created; empty: outside any module
  std::string parameter;   // parameter that the failing op was to change; empty: none
  std::string changed_by;  // "aten::mul_ in <module>": what changed the saved tensor in place;
                           // empty: unknown, or not that error
  std::string
      cut_in;  // first module with a graph or a trainable before it and none after; empty: none
  bool graph_off = false;  // no graph was recorded there (at::NoGradGuard)
};

/// Runs loss() and differentiates it. Gradients are discarded; any exception is caught. The hooks
/// that it adds to a graph outlive it and then do nothing.
PassTrace trace_pass(const torch::nn::Module& model, const std::function<at::Tensor()>& loss);

}  // namespace lft::train
