#include "models/ops/weight/masters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "models/ops/core/gemm.h"

namespace lft::ops {
namespace {

thread_local bool gradients_are_direct = false;

/// sum += scale * gradient. In float32 with autograd's operations; else in one pass.
void add_gradient(at::Tensor sum, at::Tensor gradient, double scale) {
  if (gradient.scalar_type() != at::kFloat) {
    sum.add_(gradient, scale);
  } else {
    sum.add_(scale == 1 ? gradient : gradient.mul_(scale));
  }
}

bool gathers(const at::Tensor& parameter) {
  return parameter.requires_grad() && parameter.grad().defined();
}

/// The rows of `all` are the gradients of the parameters, in order.
void add_stacked(at::TensorList parameters, const at::Tensor& all) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& parameter : parameters) sums.push_back(parameter.grad());
  if (const at::Tensor sum = stacked_view(sums); sum.defined()) {
    add_gradient(sum, all, 1);
    // Each part has a separate version counter.
    for (const at::Tensor& part : sums) part.unsafeGetTensorImpl()->bump_version();
    return;
  }
  int64_t first = 0;
  for (const at::Tensor& sum : sums) {
    add_gradient(sum, all.narrow(0, first, sum.size(0)), 1);
    first += sum.size(0);
  }
}

}  // namespace

at::Tensor low_copy(const at::Tensor& master, double scale, at::ScalarType dtype) {
  const double carried = carried_scale(dtype, scale);
  return carried == 1 ? master.to(dtype) : (master * carried).to(dtype);
}

void Shadow::keep(at::Tensor place) {
  place_ = std::move(place);
  version_ = -1;
}

void Shadow::refresh() {
  if (!place_.defined() || kept(place_.scalar_type()).defined()) return;
  const at::NoGradGuard no_grad;
  place_.copy_(scale() == 1 ? master_ : master_ * scale());
  written();
}

at::Tensor Shadow::kept(at::ScalarType dtype) const {
  const bool serves = place_.defined() && place_.scalar_type() == dtype &&
                      version_ == static_cast<int64_t>(master_._version());
  return serves ? place_ : at::Tensor();
}

at::Tensor Shadow::value(at::ScalarType dtype) const {
  const at::Tensor copy = kept(dtype);
  return copy.defined() ? copy : low_copy(master_, scale_, dtype);
}

at::Tensor stacked_view(at::TensorList parts) {
  if (parts.size() == 1) return parts[0];
  int64_t rows = 0, next = 0;
  for (const at::Tensor& part : parts) {
    if (!part.defined() || !part.is_contiguous() || !part.is_alias_of(parts[0]) ||
        part.size(1) != parts[0].size(1))
      return {};
    if (rows > 0 && part.storage_offset() != next) return {};
    rows += part.size(0);
    next = part.storage_offset() + part.numel();
  }
  return parts[0].as_strided({rows, parts[0].size(1)}, {parts[0].size(1), 1});
}

DirectGradientsGuard::DirectGradientsGuard(bool direct)
    : previous_(std::exchange(gradients_are_direct, direct)) {}
DirectGradientsGuard::~DirectGradientsGuard() { gradients_are_direct = previous_; }
bool direct_gradients() { return gradients_are_direct; }

at::Tensor master_gradient(const at::Tensor& parameter, const at::Tensor& a_mk,
                           const at::Tensor& b_kn, double scale, bool direct) {
  at::Tensor gradient = product(a_mk, b_kn);
  if (direct && gathers(parameter)) {
    add_gradient(parameter.grad(), gradient, scale);
    return {};
  }
  gradient = gradient.to(at::kFloat);
  return scale == 1 ? gradient : gradient.mul_(scale);
}

std::vector<at::Tensor> master_gradients(at::TensorList parameters, const at::Tensor& a_mk,
                                         const at::Tensor& b_kn, bool direct,
                                         const at::Tensor& factor_n) {
  at::Tensor all = product(a_mk, b_kn);
  if (factor_n.defined()) all.mul_(factor_n);
  std::vector<at::Tensor> gradients(parameters.size());
  if (direct && std::all_of(parameters.begin(), parameters.end(), gathers)) {
    add_stacked(parameters, all);
    return gradients;
  }
  const at::Tensor wide = all.to(at::kFloat);
  int64_t first = 0;
  for (size_t k = 0; k < parameters.size(); ++k) {
    const int64_t rows = parameters[k].size(0);
    if (parameters[k].requires_grad()) gradients[k] = wide.narrow(0, first, rows);
    first += rows;
  }
  return gradients;
}

}  // namespace lft::ops
