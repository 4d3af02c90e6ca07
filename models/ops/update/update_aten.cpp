#include "models/ops/update/update_aten.h"

#include <ATen/ATen.h>

#include <cstddef>

namespace lft::ops {
namespace {

/// One field of the control as a scalar tensor.
at::Tensor field(const GradVerdict& verdict, size_t offset, at::ScalarType dtype) {
  const auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  return verdict.control.narrow(0, static_cast<int64_t>(offset), bytes).view(dtype).squeeze(0);
}

}  // namespace

GradVerdict check_gradients_aten(const std::vector<at::Tensor>& gradients, float inv_scale,
                                 double max_norm, const at::Tensor& loss, at::Device device) {
  const at::TensorOptions doubles = at::TensorOptions().dtype(at::kDouble).device(device);
  GradVerdict verdict;
  verdict.control =
      at::zeros({static_cast<int64_t>(sizeof(GradControl))}, doubles.dtype(at::kByte));
  verdict.squares = at::zeros({static_cast<int64_t>(gradients.size())}, doubles);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() || gradients[i].numel() == 0) continue;
    if (inv_scale != 1) gradients[i].mul_(inv_scale);
    verdict.squares[static_cast<int64_t>(i)].copy_(
        at::linalg_vector_norm(gradients[i], 2, {}, false, at::kDouble).square_());
  }
  const at::Tensor squared_norm = verdict.squares.sum(),
                   bad = verdict.squares.isfinite().logical_not();
  const at::Tensor any_bad = bad.any();
  const at::Tensor first_bad = gradients.empty()
                                   ? at::full({}, -1, doubles)
                                   : at::where(any_bad, bad.to(at::kInt).argmax(), -1);
  const at::Tensor loss_bad =
      loss.defined() ? loss.isfinite().logical_not().reshape({}) : at::zeros_like(any_bad);
  const at::Tensor found_inf = any_bad.logical_or(loss_bad);
  const at::Tensor clip =
      max_norm > 0 ? (max_norm / (squared_norm.sqrt() + 1e-6)).clamp_max(1) : at::ones({}, doubles);
  field(verdict, offsetof(GradControl, squared_norm), at::kDouble).copy_(squared_norm);
  if (loss.defined())
    field(verdict, offsetof(GradControl, loss), at::kDouble).copy_(loss.reshape({}));
  field(verdict, offsetof(GradControl, first_bad), at::kInt).copy_(first_bad);
  field(verdict, offsetof(GradControl, loss_bad), at::kInt).copy_(loss_bad);
  field(verdict, offsetof(GradControl, clip), at::kFloat).copy_(at::where(found_inf, 1.0, clip));
  field(verdict, offsetof(GradControl, found_inf), at::kFloat).copy_(found_inf);
  return verdict;
}

at::Tensor found_inf(const GradVerdict& verdict) {
  return field(verdict, offsetof(GradControl, found_inf), at::kFloat);
}

at::Tensor clip_of(const GradVerdict& verdict) {
  return field(verdict, offsetof(GradControl, clip), at::kFloat);
}

void adamw_aten_(const std::vector<AdamWTensor>& tensors, const AdamWOptions& options,
                 const GradVerdict& verdict) {
  const at::Tensor clip = clip_of(verdict), skip = found_inf(verdict);
  for (const AdamWTensor& tensor : tensors) {
    const at::Tensor steps = at::full({}, static_cast<double>(tensor.t), tensor.exp_avg.options());
    at::_fused_adamw_({tensor.param}, {tensor.grad.to(at::kFloat) * clip}, {tensor.exp_avg},
                      {tensor.exp_avg_sq}, /*max_exp_avg_sqs=*/{}, {steps}, tensor.lr,
                      options.betas[0], options.betas[1], options.weight_decay, options.eps,
                      /*amsgrad=*/false,
                      /*maximize=*/false, /*grad_scale=*/{}, skip);
    if (tensor.copy.copy.defined()) tensor.copy.copy.copy_(tensor.param * tensor.copy.scale);
  }
}

}  // namespace lft::ops
