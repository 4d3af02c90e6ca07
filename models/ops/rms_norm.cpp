#include "models/ops/rms_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/layers/dims.h"
#include "models/ops/dispatch.h"
#include "models/ops/parallel.h"
#include "models/ops/precision.h"
#ifdef LFT_HAVE_CUDA
#include "kernels/rms_norm/rms_norm.h"
#include "models/ops/device_call.h"
#endif

namespace lft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Loops exist for one dtype, and for float32 with BFloat16.
template <class X, class Y>
constexpr bool kHasPair = std::is_same_v<X, loops::Half> == std::is_same_v<Y, loops::Half>;
bool has_loop_pair(at::ScalarType x, at::ScalarType y) { return has_loop_type(y) && (x == at::kHalf) == (y == at::kHalf); }

#ifdef LFT_HAVE_CUDA
RmsNormArgs kernel_args(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, double eps, at::ScalarType y_type) {
  return {.rows = rstd.numel(),
          .cols = x.size(-1),
          .eps = static_cast<float>(eps),
          .x_type = *float_type(x.scalar_type()),
          .y_type = *float_type(y_type),
          .w_type = *float_type(weight.scalar_type()),
          .x = x.const_data_ptr(),
          .w = weight.const_data_ptr(),
          .rstd = rstd.mutable_data_ptr<float>()};
}

/// FP16 goes with FP16 only.
bool kernel_fits(const at::Tensor& x, const at::Tensor& weight, at::ScalarType y_type) {
  return has_kernel(x, weight) && (x.scalar_type() == at::kHalf) == (y_type == at::kHalf);
}
#endif

at::Tensor empty_rstd(const at::Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = 1;
  return at::empty(shape, x.options().dtype(at::kFloat));
}

/// y and rstd [..., 1].
std::pair<at::Tensor, at::Tensor> forward_values(const at::Tensor& x, const at::Tensor& weight, double eps, at::ScalarType out) {
#ifdef LFT_HAVE_CUDA
  if (kernel_fits(x, weight, out)) {
    at::Tensor y = at::empty(x.sizes(), x.options().dtype(out)), rstd = empty_rstd(x);
    const RmsNormArgs args = kernel_args(x, weight, rstd, eps, out);
    on_device_of(x, [&](Stream stream) { rms_norm(args, nullptr, nullptr, y.mutable_data_ptr(), stream); });
    return {y, rstd};
  }
#endif
  if (!has_loop(x) || !has_loop_pair(x.scalar_type(), out)) {
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor rstd = at::rsqrt(at::mean(wide * wide, -1, /*keepdim=*/true) + eps);
    return {(wide * rstd * weight.to(at::kFloat)).to(out), rstd};
  }
  const at::Tensor w = weight.to(at::kFloat).contiguous();
  at::Tensor y = at::empty(x.sizes(), x.options().dtype(out));
  at::Tensor rstd = empty_rstd(x);
  const int64_t cols = x.size(-1), rows = cols == 0 ? 0 : x.numel() / cols;
  with_loop_type(x.scalar_type(), [&](auto* x_type) {
    with_loop_type(out, [&](auto* y_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      if constexpr (kHasPair<X, Y>) {
        const X* from = x.const_data_ptr<X>();
        Y* to = y.mutable_data_ptr<Y>();
        parallel_for(rows, kLoopGrain / (cols + 1) + 1, [&](int64_t begin, int64_t end) {
          loops::rms_norm(from + begin * cols, w.const_data_ptr<float>(), to + begin * cols, rstd.mutable_data_ptr<float>() + begin,
                          end - begin, cols, static_cast<float>(eps));
        });
      }
    });
  });
  return {y, rstd};
}

at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd) {
#ifdef LFT_HAVE_CUDA
  if (kernel_fits(x, weight, dy.scalar_type()) && has_kernel(dy)) {
    at::Tensor dx = at::empty_like(x);
    const RmsNormArgs args = kernel_args(x, weight, rstd, 0, dy.scalar_type());
    on_device_of(x, [&](Stream stream) { rms_norm_backward(args, dy.const_data_ptr(), nullptr, dx.mutable_data_ptr(), stream); });
    return dx;
  }
#endif
  if (!has_loop(x) || !has_loop(dy) || !has_loop_pair(x.scalar_type(), dy.scalar_type())) {
    const at::Tensor wide = x.to(at::kFloat), weighted = dy.to(at::kFloat) * weight.to(at::kFloat);
    const at::Tensor shrink = rstd * rstd * at::mean(weighted * wide, -1, /*keepdim=*/true);
    return (rstd * (weighted - wide * shrink)).to(x.scalar_type());
  }
  const at::Tensor w = weight.to(at::kFloat).contiguous();
  at::Tensor dx = at::empty_like(x);
  const int64_t cols = x.size(-1), rows = cols == 0 ? 0 : x.numel() / cols;
  with_loop_type(x.scalar_type(), [&](auto* x_type) {
    with_loop_type(dy.scalar_type(), [&](auto* y_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      if constexpr (kHasPair<X, Y>) {
        parallel_for(rows, kLoopGrain / (cols + 1) + 1, [&](int64_t begin, int64_t end) {
          loops::rms_norm_backward(dy.const_data_ptr<Y>() + begin * cols, x.const_data_ptr<X>() + begin * cols, w.const_data_ptr<float>(),
                                   rstd.const_data_ptr<float>() + begin, dx.mutable_data_ptr<X>() + begin * cols, end - begin, cols);
        });
      }
    });
  });
  return dx;
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, double eps) {
    auto [y, rstd] = forward_values(x, weight, eps, op_dtype(Op::kRmsNorm, x.scalar_type()));
    ctx->save_for_backward({x, weight, rstd});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2];
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor dx, dw;
    if (ctx->needs_input_grad(0)) dx = input_gradient(dy, x, weight, rstd);
    if (ctx->needs_input_grad(1)) {
      dw = (dy.to(at::kFloat) * x.to(at::kFloat) * rstd).reshape({-1, x.size(-1)}).sum(0).to(weight.scalar_type());
    }
    return {dx, dw, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  expect_last_dim(x, "x", {"d", weight.size(0)});
  return RmsNormFunction::apply(x.contiguous(), weight, eps);
}

}  // namespace lft
