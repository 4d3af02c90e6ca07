// Helpers for observers of a pass: the tensors among an op's values, their memory, and the graph
// nodes behind a tensor.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace lft::train {

/// Appends the defined tensors of `value`, which may be a tensor, a list or a tuple.
void collect_tensors(const c10::IValue& value, std::vector<at::Tensor>& out);

/// Equal for two tensors if they share memory. A tensor without storage is distinct; nullptr:
/// undefined.
const void* memory_of(const at::Tensor& tensor);

/// Known nodes. A freed node's address may be reused, so a weak reference to its owner is kept.
using KnownNodes =
    std::unordered_map<const torch::autograd::Node*, std::weak_ptr<torch::autograd::Node>>;

/// Visits every unknown node behind `tensor` and marks it as known. Nodes that accumulate into
/// leaves are skipped.
void visit_new_nodes(const at::Tensor& tensor, KnownNodes& known,
                     const std::function<void(torch::autograd::Node&)>& visit);

}  // namespace lft::train
