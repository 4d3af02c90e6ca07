// The common part of AdamW with float32 moments (adamw.cpp) and with 8-bit moments (adamw8.cpp):
// checks the tensors, builds a table of them, and runs the update on their device.
#pragma once
#include <ATen/core/grad_mode.h>

#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "models/ops/update/adamw.h"
#include "models/ops/update/chunked.h"
#include "models/ops/update/cpu_update.h"
#ifdef LFT_HAVE_CUDA
#include "models/ops/core/device_call.h"
#endif

namespace lft::ops {

/// A chunk's gradient for the CPU loops.
template <class Item>
loops::GradLoop grad_of(const Item& item, const Chunk& chunk) {
  return {item.type,
          static_cast<const char*>(item.grad) + chunk.first * float_type_size(item.type)};
}

/// Writes the copy of a chunk that the CPU loops have updated, while it is in the cache.
template <class Item>
void write_copy(const Item& item, const Chunk& chunk) {
  if (item.shadow.data == nullptr) return;
  char* const to =
      static_cast<char*>(item.shadow.data) + chunk.first * float_type_size(item.shadow.type);
  loops::shadow(item.shadow.type, to, item.param + chunk.first, chunk.count, item.shadow.scale);
}

/// Throws kInternal if a tensor of an update is invalid.
struct UpdateChecks {
  const char* where;  // name of the op
  at::Device device;  // device of the checked gradients
  std::string name = {};

  [[noreturn]] void refuse(const std::string& what, const std::string& found) const {
    throw Error(ErrorKind::kInternal,
                {.what = name + what, .where = where, .found = found, .expected = {}, .next = {}});
  }
  void require_place(const at::Tensor& part, int64_t numel) const {
    if (part.numel() != numel) refuse(": sizes differ", std::to_string(part.numel()));
    if (part.device() != device)
      refuse(" is not where its gradients were checked", part.device().str() + ", " + device.str());
  }
  void require(const at::Tensor& part, at::ScalarType dtype, int64_t numel,
               const char* otherwise) const {
    if (part.scalar_type() != dtype || !part.is_contiguous()) refuse(otherwise, part.toString());
    require_place(part, numel);
  }
  void require_gradient(const at::Tensor& grad, int64_t numel) const {
    if (!grad.defined() || grad.layout() != at::kStrided || !float_type(grad.scalar_type())) {
      refuse(": the gradient is not a dense float32, bfloat16 or float16 tensor", grad.toString());
    }
    require_place(grad, numel);
  }
  void require_copy(const at::Tensor& copy, int64_t numel) const {
    if (!copy.defined()) return;
    if (!copy.is_contiguous() || copy.element_size() != 2 || !float_type(copy.scalar_type())) {
      refuse(": the copy is not a contiguous bfloat16 or float16 tensor", copy.toString());
    }
    require_place(copy, numel);
  }
};

/// Op: its kName; its Tensor, Item and Args; require(checks, tensor), for everything but the
/// gradient; fill(item, tensor), the pointers to the moments; loops(items, args) on a CPU;
/// launch(args, device, stream), with the table on the device.
template <class Op>
void update(const std::vector<typename Op::Tensor>& tensors, const AdamWOptions& options,
            const GradVerdict& verdict) {
  at::NoGradGuard no_grad;
  if (!verdict.control.defined())
    UpdateChecks{Op::kName, at::kCPU}.refuse("the gradients were not checked", "");
  const at::Device device = verdict.control.device();
  UpdateChecks checks{Op::kName, device};
  typename Op::Args args;
  args.beta1 = options.betas[0];
  args.beta2 = options.betas[1];
  args.eps = options.eps;
  std::vector<at::Tensor> grads;
  std::vector<typename Op::Item> items;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const typename Op::Tensor& tensor = tensors[i];
    checks.name = "tensor " + std::to_string(i);
    Op::require(checks, tensor);
    checks.require_gradient(tensor.grad, tensor.param.numel());
    checks.require_copy(tensor.copy.copy, tensor.param.numel());
    if (tensor.t < 1) checks.refuse(": updates count from 1", std::to_string(tensor.t));
    grads.push_back(tensor.grad.contiguous());
    typename Op::Item& item = items.emplace_back();
    item.param = static_cast<float*>(tensor.param.mutable_data_ptr());
    item.grad = grads.back().const_data_ptr();
    item.count = tensor.param.numel();
    item.type = *float_type(grads.back().scalar_type());
    if (tensor.copy.copy.defined()) {
      item.shadow = {.data = tensor.copy.copy.mutable_data_ptr(),
                     .scale = static_cast<float>(tensor.copy.scale),
                     .type = *float_type(tensor.copy.copy.scalar_type())};
    }
    Op::fill(item, tensor);
    set_rates(item, args, tensor.lr, options.weight_decay, tensor.t);
  }
  args.count = static_cast<int64_t>(items.size());
  args.chunks = number_chunks(items);
  args.items = items.data();
  args.control = static_cast<const GradControl*>(verdict.control.const_data_ptr());
  if (device.is_cpu()) {
    if (args.control->found_inf == 0) Op::loops(items, args);
  } else {
#ifdef LFT_HAVE_CUDA
    const at::Tensor there = upload(items, device);
    args.items = static_cast<const typename Op::Item*>(there.const_data_ptr());
    on_device(device, [&](Stream stream) { Op::launch(args, device, stream); });
#else
    checks.refuse(": no kernel for the device in this build", device.str());
#endif
  }
  for (const typename Op::Tensor& tensor : tensors)
    tensor.param.unsafeGetTensorImpl()->bump_version();  // like every in-place op of torch
}

}  // namespace lft::ops
