#include "src/train/explain/pass_walk.h"

#include <torch/csrc/autograd/function.h>

namespace lft::train {

using torch::autograd::Node;

void collect_tensors(const c10::IValue& value, std::vector<at::Tensor>& out) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) out.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(tensor);
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) collect_tensors(element, out);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) collect_tensors(element, out);
  }
}

const void* memory_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl())
                              : tensor.unsafeGetTensorImpl();
}

void visit_new_nodes(const at::Tensor& tensor, KnownNodes& known,
                     const std::function<void(Node&)>& visit) {
  if (!tensor.defined() || tensor.grad_fn() == nullptr) return;
  std::vector<std::shared_ptr<Node>> open = {tensor.grad_fn()};
  while (!open.empty()) {
    const std::shared_ptr<Node> node = open.back();
    open.pop_back();
    std::weak_ptr<Node>& seen = known[node.get()];
    if (seen.lock() == node || node->num_outputs() == 0) continue;
    seen = node;
    visit(*node);
    for (const auto& edge : node->next_edges()) {
      if (edge.function != nullptr) open.push_back(edge.function);
    }
  }
}

}  // namespace lft::train
