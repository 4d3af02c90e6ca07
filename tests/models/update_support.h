// Shared helpers of both AdamW tests. Tensor: AdamWTensor or AdamW8Tensor.
#pragma once
#include <initializer_list>
#include <vector>

#include "models/ops/update/adamw.h"
#include "models/step_support.h"
#include "models/tiny.h"

namespace lft::test {

template <class Tensor>
GradVerdict verdict(const std::vector<Tensor>& tensors, double max_norm = 0) {
  std::vector<at::Tensor> gradients;
  for (const Tensor& tensor : tensors) gradients.push_back(tensor.grad);
  return check_gradients(gradients, 1, max_norm, {});
}

template <class Tensor>
GradVerdict verdict(std::initializer_list<Tensor> tensors, double max_norm = 0) {
  return verdict(std::vector<Tensor>(tensors), max_norm);
}

/// kernels/'s reference on the tensors' own memory. moments(item, tensor) sets an item's pointers
/// to them.
template <class Item, class Args, class Tensor, class Moments>
void reference(const std::vector<Tensor>& tensors, const AdamWOptions& options,
               const GradVerdict& verdict, const Moments& moments, void (*ref)(const Args&)) {
  Args args;
  args.beta1 = options.betas[0];
  args.beta2 = options.betas[1];
  args.eps = options.eps;
  std::vector<Item> items;
  for (const Tensor& tensor : tensors) {
    Item& item = items.emplace_back();
    item.param = tensor.param.template mutable_data_ptr<float>();
    item.grad = tensor.grad.const_data_ptr();
    item.count = tensor.param.numel();
    item.type = *float_type(tensor.grad.scalar_type());
    moments(item, tensor);
    set_rates(item, args, tensor.lr, options.weight_decay, tensor.t);
  }
  args.items = items.data();
  args.count = static_cast<int64_t>(items.size());
  args.control = static_cast<const GradControl*>(verdict.control.const_data_ptr());
  ref(args);
}

}  // namespace lft::test
