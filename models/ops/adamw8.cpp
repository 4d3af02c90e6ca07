#include "models/ops/adamw8.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <string>

#include "kernels/adamw8/adamw8.h"
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
  throw Error(ErrorKind::kInternal, {.what = what, .where = "adamw8_", .found = found, .expected = {}, .next = {}});
}

void check(const AdamW8Tensor& tensor, size_t index, at::Device device) {
  const std::string name = "tensor " + std::to_string(index);
  const int64_t count = tensor.param.numel();
  const auto part = [&](const at::Tensor& state, at::ScalarType dtype, int64_t elements, const char* what) {
    if (state.scalar_type() != dtype || !state.is_contiguous()) refuse(name + ": " + what, state.toString());
    if (state.numel() != elements) refuse(name + ": sizes differ", std::to_string(state.numel()));
    if (state.device() != device) refuse(name + " is not where its gradients were checked", state.device().str() + ", " + device.str());
  };
  if (!tensor.grad.defined() || tensor.grad.layout() != at::kStrided || !float_type(tensor.grad.scalar_type())) {
    refuse(name + ": the gradient is not a dense float32, bfloat16 or float16 tensor", tensor.grad.toString());
  }
  if (tensor.grad.numel() != count) refuse(name + ": sizes differ", std::to_string(tensor.grad.numel()));
  part(tensor.param, at::kFloat, count, "the parameter must be contiguous float32");
  for (const at::Tensor* codes : {&tensor.exp_avg, &tensor.exp_avg_sq}) part(*codes, at::kByte, count, "codes must be contiguous uint8");
  for (const at::Tensor* absmax : {&tensor.exp_avg_absmax, &tensor.exp_avg_sq_absmax}) {
    part(*absmax, at::kFloat, moment_blocks(count), "the scales of blocks must be contiguous float32");
  }
  if (tensor.grad.device() != device) {
    refuse(name + " is not where its gradients were checked", tensor.grad.device().str() + ", " + device.str());
  }
  if (tensor.t < 1) refuse(name + ": updates count from 1", std::to_string(tensor.t));
}

AdamW8Item make_item(const AdamW8Tensor& tensor, const at::Tensor& grad, const AdamW8Args& args, double weight_decay) {
  AdamW8Item item;
  item.param = static_cast<float*>(tensor.param.mutable_data_ptr());
  item.exp_avg = tensor.exp_avg.mutable_data_ptr<uint8_t>();
  item.exp_avg_sq = tensor.exp_avg_sq.mutable_data_ptr<uint8_t>();
  item.exp_avg_absmax = tensor.exp_avg_absmax.mutable_data_ptr<float>();
  item.exp_avg_sq_absmax = tensor.exp_avg_sq_absmax.mutable_data_ptr<float>();
  item.grad = grad.const_data_ptr();
  item.count = tensor.param.numel();
  item.type = *float_type(grad.scalar_type());
  set_rates(item, args, tensor.lr, weight_decay, tensor.t);
  return item;
}

void run_loops(const std::vector<AdamW8Item>& items, const AdamW8Args& args) {
  if (args.control->found_inf != 0) return;
  static const loops::MomentCode exp_avg{code_maps().exp_avg}, exp_avg_sq{code_maps().exp_avg_sq};
  for_each_chunk(items, [&](int64_t, const Chunk& chunk) {
    const AdamW8Item& item = items[chunk.tensor];
    const char* const grad = static_cast<const char*>(item.grad) + chunk.first * float_type_size(item.type);
    const int64_t block = chunk.first / kMomentBlock;
    loops::adamw8(item.param + chunk.first, item.type, grad, {item.exp_avg + chunk.first, item.exp_avg_absmax + block, exp_avg},
                  {item.exp_avg_sq + chunk.first, item.exp_avg_sq_absmax + block, exp_avg_sq}, chunk.count,
                  float_rates(item, args, args.control->clip));
  });
}

/// false where this build or device has no kernel.
bool run_kernel(const std::vector<AdamW8Item>& items, AdamW8Args args, at::Device device) {
#ifdef LFT_HAVE_CUDA
  if (!device.is_cuda()) return false;
  const c10::cuda::CUDAGuard guard(device);
  const at::Tensor on_device = upload(items, device), maps = upload(std::vector<CodeMaps>{code_maps()}, device);
  args.items = static_cast<const AdamW8Item*>(on_device.const_data_ptr());
  args.maps = static_cast<const CodeMaps*>(maps.const_data_ptr());
  adamw8(args, c10::cuda::getCurrentCUDAStream());
  return true;
#else
  return false;
#endif
}

}  // namespace

int64_t moment_blocks(int64_t elements) { return (elements + kMomentBlock - 1) / kMomentBlock; }

void adamw8_(const std::vector<AdamW8Tensor>& tensors, const AdamWOptions& options, const GradVerdict& verdict) {
  at::NoGradGuard no_grad;
  if (!verdict.control.defined()) refuse("the gradients were not checked", "");
  const at::Device device = verdict.control.device();
  AdamW8Args args;
  args.beta1 = options.betas[0];
  args.beta2 = options.betas[1];
  args.eps = options.eps;
  std::vector<at::Tensor> grads;
  std::vector<AdamW8Item> items;
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
    adamw8_plain_(tensors, options, verdict);
  }
  for (const AdamW8Tensor& tensor : tensors) tensor.param.unsafeGetTensorImpl()->bump_version();  // as every in-place op of torch
}

}  // namespace lft
