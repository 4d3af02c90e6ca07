#include "models/ops/core/few_rows.h"

#include <ATen/ATen.h>

#include <utility>

#include "models/ops/core/dispatch.h"
#include "models/ops/core/few_rows_loops.h"
#include "models/ops/core/parallel.h"

namespace lft::ops {
namespace {

constexpr int64_t kMostRows = 32;  // for more rows a library's GEMM is as fast

thread_local bool takes_them = false;

bool is_dense(int64_t stride, int64_t size) { return stride == 1 || size <= 1; }

/// y = base + alpha a b. base: y itself, one row for all, or undefined.
void write_product(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b,
                   const at::Tensor& base, double alpha) {
  const at::Tensor wide = a.to(at::kFloat);
  with_loop_type(a.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool whole = base.defined() && base.dim() == 2;
    const loops::FewRows<T> of{.x = wide.const_data_ptr<float>(),
                               .w = b.const_data_ptr<T>(),
                               .base = base.defined() ? base.const_data_ptr<T>() : nullptr,
                               .y = y.mutable_data_ptr<T>(),
                               .rows = a.size(0),
                               .width = a.size(1),
                               .x_stride = wide.stride(0),
                               .w_stride = b.stride(1),
                               .base_stride = whole ? base.stride(0) : 0,
                               .y_stride = y.stride(0),
                               .scale = static_cast<float>(alpha)};
    parallel_for(b.size(1), kLoopGrain / (a.size(1) + 1) + 1,
                 [&](int64_t begin, int64_t end) { loops::few_rows(of, begin, end); });
  });
}

}  // namespace

FewRowsGuard::FewRowsGuard(bool takes) : previous_(std::exchange(takes_them, takes)) {}
FewRowsGuard::~FewRowsGuard() { takes_them = previous_; }

bool takes_few_rows(const at::Tensor& a) {
  return takes_them && a.device().is_cpu() && has_loop_type(a.scalar_type()) &&
         a.size(0) <= kMostRows && is_dense(a.stride(1), a.size(1));
}

bool takes_few_rows(const at::Tensor& a, const at::Tensor& b) {
  return takes_few_rows(a) && b.device().is_cpu() && a.scalar_type() == b.scalar_type() &&
         a.size(1) == b.size(0) && is_dense(b.stride(0), b.size(0));
}

at::Tensor few_rows_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  at::Tensor y = at::empty({a.size(0), b.size(1)}, a.options());
  write_product(y, a, b, bias.defined() ? bias.contiguous() : bias, 1);
  return y;
}

void add_few_rows_product(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b,
                          double alpha) {
  write_product(y, a, b, y, alpha);
}

}  // namespace lft::ops
