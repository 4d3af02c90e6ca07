// What those who watch a pass take apart: the tensors among an op's values, their memory, the graph
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

/// Appends the defined tensors of `value`, which may be one, a list or a tuple of them.
void collect_tensors(const c10::IValue& value, std::vector<at::Tensor>& out);

/// Two tensors have the same when they share their memory. A tensor without any is separate;
/// nullptr: an undefined one.
const void* memory_of(const at::Tensor& tensor);

/// Nodes met before. A freed node's address may come again, so its owner is kept weakly with it.
using KnownNodes =
    std::unordered_map<const torch::autograd::Node*, std::weak_ptr<torch::autograd::Node>>;

/// Visits every node behind `tensor` that is not known yet, and makes it known. Nodes that
/// accumulate into leaves are left out.
void visit_new_nodes(const at::Tensor& tensor, KnownNodes& known,
                     const std::function<void(torch::autograd::Node&)>& visit);

}  // namespace lft::train
