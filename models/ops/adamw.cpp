#include "models/ops/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <string>

#include "kernels/adamw/adamw.h"
#include "kernels/common/error.h"
#include "models/ops/chunked.h"
#include "models/ops/step_loops.h"
#include "models/ops/step_plain.h"
#ifdef LFT_HAVE_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace lft {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& found) {
  throw Error(ErrorKind::kInternal, {.what = what, .where = "adamw_", .found = found, .expected = {}, .next = {}});
}

void check(const AdamWTensor& tensor, size_t index, at::Device device) {
  const std::string name = "tensor " + std::to_string(index);
  for (const at::Tensor* state : {&tensor.param, &tensor.exp_avg, &tensor.exp_avg_sq}) {
    if (state->scalar_type() != at::kFloat || !state->is_contiguous())
      refuse(name + ": parameter and moments must be contiguous float32", "");
  }
  if (!tensor.grad.defined() || tensor.grad.layout() != at::kStrided || !float_type(tensor.grad.scalar_type())) {
    refuse(name + ": the gradient is not a dense float32, bfloat16 or float16 tensor", tensor.grad.toString());
  }
  for (const at::Tensor* part : {&tensor.grad, &tensor.exp_avg, &tensor.exp_avg_sq, &tensor.param}) {
    if (part->numel() != tensor.param.numel()) refuse(name + ": sizes differ", std::to_string(part->numel()));
    if (part->device() != device) refuse(name + " is not where its gradients were checked", part->device().str() + ", " + device.str());
  }
  if (tensor.t < 1) refuse(name + ": updates count from 1", std::to_string(tensor.t));
}

AdamWItem make_item(const AdamWTensor& tensor, const at::Tensor& grad, const AdamWArgs& args, double weight_decay) {
  AdamWItem item;
  item.param = static_cast<float*>(tensor.param.mutable_data_ptr());
  item.exp_avg = tensor.exp_avg.mutable_data_ptr<float>();
  item.exp_avg_sq = tensor.exp_avg_sq.mutable_data_ptr<float>();
  item.grad = grad.const_data_ptr();
  item.count = tensor.param.numel();
  item.type = *float_type(grad.scalar_type());
  set_rates(item, args, tensor.lr, weight_decay, tensor.t);
  return item;
}

void run_loops(const std::vector<AdamWItem>& items, const AdamWArgs& args) {
  if (args.control->found_inf != 0) return;
  for_each_chunk(items, [&](int64_t, const Chunk& chunk) {
    const AdamWItem& item = items[chunk.tensor];
    const char* const grad = static_cast<const char*>(item.grad) + chunk.first * float_type_size(item.type);
    loops::adamw(item.param + chunk.first, item.type, grad, item.exp_avg + chunk.first, item.exp_avg_sq + chunk.first, chunk.count,
                 float_rates(item, args, args.control->clip));
  });
}

/// false where this build or device has no kernel.
bool run_kernel(const std::vector<AdamWItem>& items, AdamWArgs args, at::Device device) {
#ifdef LFT_HAVE_CUDA
  if (!device.is_cuda()) return false;
  const c10::cuda::CUDAGuard guard(device);
  const at::Tensor on_device = upload(items, device);
  args.items = static_cast<const AdamWItem*>(on_device.const_data_ptr());
  adamw(args, c10::cuda::getCurrentCUDAStream());
  return true;
#else
  return false;
#endif
}

}  // namespace

void adamw_(const std::vector<AdamWTensor>& tensors, const AdamWOptions& options, const GradVerdict& verdict) {
  at::NoGradGuard no_grad;
  if (!verdict.control.defined()) refuse("the gradients were not checked", "");
  const at::Device device = verdict.control.device();
  AdamWArgs args;
  args.beta1 = options.betas[0];
  args.beta2 = options.betas[1];
  args.eps = options.eps;
  std::vector<at::Tensor> grads;
  std::vector<AdamWItem> items;
  for (size_t i = 0; i < tensors.size(); ++i) {
    check(tensors[i], i, device);
    grads.push_back(tensors[i].grad.contiguous());
    items.push_back(make_item(tensors[i], grads.back(), args, options.weight_decay));
  }
  args.count = static_cast<int64_t>(items.size());
  args.chunks = number_chunks(items);
  args.items = items.data();
  args.control = static_cast<const GradControl*>(verdict.control.const_data_ptr());
  if (device.is_cpu()) {
    run_loops(items, args);
  } else if (!run_kernel(items, args, device)) {
    adamw_plain_(tensors, options, verdict);
  }
  for (const AdamWTensor& tensor : tensors) tensor.param.unsafeGetTensorImpl()->bump_version();  // as every in-place op of torch
}

}  // namespace lft
