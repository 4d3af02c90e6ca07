// LibTorch's errors in words that help: what was done wrong, in which module and phase, and the
// remedy. Meant for authors of adapters, hooks and ops; lft's own step mutates no trainable,
// changes no saved tensor and frees each graph with its one backward pass.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <exception>
#include <functional>

#include "kernels/common/error.h"
#include "src/train/explain/autograd_trace.h"

namespace lft::train {

/// kInternal: LibTorch's first line with what it means. `trace` is of the same pass once more;
/// nullptr: what the error itself tells. One that is in no list keeps its words and gets its
/// module.
Error explain_torch_error(const std::exception& error, const PassTrace* trace = nullptr);

/// In a catch block around one forward and backward pass: runs forward() and its backward pass
/// again under watch and throws what explains it. Out-of-memory and lft's own errors are passed on
/// as they are; one of those about a `loss` without a graph is told where the graph was cut.
[[noreturn]] void rethrow_explained(const std::exception& error, const torch::nn::Module& model,
                                    const std::function<at::Tensor()>& forward,
                                    const at::Tensor& loss);

}  // namespace lft::train
