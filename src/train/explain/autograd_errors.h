// Explains LibTorch's autograd errors: the cause, the module and phase, and the remedy. Intended
// for authors of adapters, hooks and ops; lft's own step does not modify trainables or saved
// tensors in place and frees each graph with its one backward pass.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <exception>
#include <functional>

#include "kernels/common/error.h"
#include "src/train/explain/autograd_trace.h"

namespace lft::train {

/// kInternal with LibTorch's first line and its meaning. `trace` is from a repetition of the same
/// pass; nullptr: only the error's own information is used. An unknown error keeps its text and
/// gets its module added.
Error explain_torch_error(const std::exception& error, const PassTrace* trace = nullptr);

/// For a catch block around a forward and backward pass: repeats both under observation and throws
/// an explained error. Out-of-memory and lft's own errors are rethrown unchanged; an error about a
/// `loss` without a graph states where the graph was cut.
[[noreturn]] void rethrow_explained(const std::exception& error, const torch::nn::Module& model,
                                    const std::function<at::Tensor()>& forward,
                                    const at::Tensor& loss);

}  // namespace lft::train
