#include "models/ops/elementwise/rms_norm.h"

#include <ATen/core/grad_mode.h>

#include <optional>

#include "models/ops/core/cpu_loops.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/function.h"
#ifdef LFT_HAVE_CUDA
#include "kernels/rms_norm/rms_norm.h"
#endif

namespace lft::ops {
namespace {

/// Loops exist for one dtype, and for float32 with BFloat16.
template <class X, class Y>
constexpr bool kHasPair = std::is_same_v<X, loops::Half> == std::is_same_v<Y, loops::Half>;
bool has_loop_pair(at::ScalarType x, at::ScalarType y) {
  return has_loop_type(y) && (x == at::kHalf) == (y == at::kHalf);
}

#ifdef LFT_HAVE_CUDA
RmsNormArgs kernel_args(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                        double eps, at::ScalarType y_type) {
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

/// FP16 is only combined with FP16.
bool kernel_fits(const at::Tensor& x, const at::Tensor& weight, at::ScalarType y_type) {
  return has_kernel(x, weight) && (x.scalar_type() == at::kHalf) == (y_type == at::kHalf);
}
#endif

at::Tensor empty_rstd(const at::Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = 1;
  return at::empty(shape, x.options().dtype(at::kFloat));
}

struct Values {
  at::Tensor sum, y, rstd;  // sum: x itself without delta; rstd [..., 1]
};

Values forward_values(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                      double eps, at::ScalarType out) {
#ifdef LFT_HAVE_CUDA
  if (kernel_fits(x, weight, out)) {
    Values values{delta.defined() ? at::empty_like(x) : x,
                  at::empty(x.sizes(), x.options().dtype(out)), empty_rstd(x)};
    const RmsNormArgs args = kernel_args(x, weight, values.rstd, eps, out);
    const void* more = delta.defined() ? delta.const_data_ptr() : nullptr;
    void* sum = delta.defined() ? values.sum.mutable_data_ptr() : nullptr;
    on_device_of(
        x, [&](Stream stream) { rms_norm(args, more, sum, values.y.mutable_data_ptr(), stream); });
    return values;
  }
#endif
  if (!has_loop(x) || !has_loop_pair(x.scalar_type(), out)) {
    const at::Tensor sum = delta.defined() ? x + delta : x, wide = sum.to(at::kFloat);
    const at::Tensor rstd = at::rsqrt(at::mean(wide * wide, -1, /*keepdim=*/true) + eps);
    return {sum, (wide * rstd * weight.to(at::kFloat)).to(out), rstd};
  }
  const at::Tensor w = weight.to(at::kFloat).contiguous();
  Values values{delta.defined() ? at::empty_like(x) : x,
                at::empty(x.sizes(), x.options().dtype(out)), empty_rstd(x)};
  const int64_t cols = x.size(-1), rows = cols == 0 ? 0 : x.numel() / cols;
  with_loop_type(x.scalar_type(), [&](auto* x_type) {
    with_loop_type(out, [&](auto* y_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      if constexpr (kHasPair<X, Y>) {
        const X *from = x.const_data_ptr<X>(),
                *more = delta.defined() ? delta.const_data_ptr<X>() : nullptr;
        X* sum = delta.defined() ? values.sum.mutable_data_ptr<X>() : nullptr;
        Y* to = values.y.mutable_data_ptr<Y>();
        float* rstd = values.rstd.mutable_data_ptr<float>();
        parallel_for(rows, kLoopGrain / (cols + 1) + 1, [&](int64_t begin, int64_t end) {
          const int64_t first = begin * cols;
          const loops::RmsNormRows<X, Y> of{.x = from + first,
                                            .delta = more == nullptr ? nullptr : more + first,
                                            .w = w.const_data_ptr<float>(),
                                            .sum = sum == nullptr ? nullptr : sum + first,
                                            .y = to + first,
                                            .rstd = rstd + begin};
          loops::rms_norm(of, end - begin, cols, static_cast<float>(eps));
        });
      }
    });
  });
  return values;
}

/// dsum: the gradient of s from its other uses; may be undefined.
at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& dsum, const at::Tensor& x,
                          const at::Tensor& weight, const at::Tensor& rstd) {
#ifdef LFT_HAVE_CUDA
  if (kernel_fits(x, weight, dy.scalar_type()) && has_kernel(dy)) {
    at::Tensor dx = at::empty_like(x);
    const RmsNormArgs args = kernel_args(x, weight, rstd, 0, dy.scalar_type());
    const void* beside = dsum.defined() ? dsum.const_data_ptr() : nullptr;
    on_device_of(x, [&](Stream stream) {
      rms_norm_backward(args, dy.const_data_ptr(), beside, dx.mutable_data_ptr(), stream);
    });
    return dx;
  }
#endif
  if (!has_loop(x) || !has_loop(dy) || !has_loop_pair(x.scalar_type(), dy.scalar_type())) {
    const at::Tensor wide = x.to(at::kFloat), weighted = dy.to(at::kFloat) * weight.to(at::kFloat);
    const at::Tensor shrink = rstd * rstd * at::mean(weighted * wide, -1, /*keepdim=*/true);
    const at::Tensor dx = (rstd * (weighted - wide * shrink)).to(x.scalar_type());
    return dsum.defined() ? dx + dsum : dx;
  }
  const at::Tensor w = weight.to(at::kFloat).contiguous();
  at::Tensor dx = at::empty_like(x);
  const int64_t cols = x.size(-1), rows = cols == 0 ? 0 : x.numel() / cols;
  with_loop_type(x.scalar_type(), [&](auto* x_type) {
    with_loop_type(dy.scalar_type(), [&](auto* y_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      if constexpr (kHasPair<X, Y>) {
        const X* beside = dsum.defined() ? dsum.const_data_ptr<X>() : nullptr;
        parallel_for(rows, kLoopGrain / (cols + 1) + 1, [&](int64_t begin, int64_t end) {
          const int64_t first = begin * cols;
          const loops::RmsNormGradients<X, Y> of{
              .dy = dy.const_data_ptr<Y>() + first,
              .dsum = beside == nullptr ? nullptr : beside + first,
              .x = x.const_data_ptr<X>() + first,
              .w = w.const_data_ptr<float>(),
              .rstd = rstd.const_data_ptr<float>() + begin,
              .dx = dx.mutable_data_ptr<X>() + first};
          loops::rms_norm_backward(of, end - begin, cols);
        });
      }
    });
  });
  return dx;
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  /// Returns s and y.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                               const std::optional<at::Tensor>& delta, double eps,
                               at::Tensor* rstd) {
    const Values values = forward_values(x, delta.value_or(at::Tensor()), weight, eps,
                                         op_dtype(Op::kRmsNorm, x.scalar_type()));
    *rstd = values.rstd;
    ctx->save_for_backward({values.sum, weight, values.rstd});
    ctx->saved_data["sums"] = delta.has_value();
    ctx->set_materialize_grads(false);
    return {values.sum, values.y};
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[1], &rstd = saved[2];
    const bool sums = ctx->saved_data["sums"].toBool();
    at::Tensor ds = gradients[0], dw;
    if (gradients[1].defined()) {
      const at::Tensor dy = gradients[1].contiguous();
      if (ctx->needs_input_grad(1)) {
        dw = (dy.to(at::kFloat) * sum.to(at::kFloat) * rstd)
                 .reshape({-1, sum.size(-1)})
                 .sum(0)
                 .to(weight.scalar_type());
      }
      if (ctx->needs_input_grad(0) || (sums && ctx->needs_input_grad(2))) {
        ds = input_gradient(dy, ds.defined() ? ds.contiguous() : ds, sum, weight, rstd);
      }
    }
    return {ds, dw, sums ? ds : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Normed add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                    double eps) {
  expect_last_dim(x, "x", {"d", weight.size(0)});
  at::Tensor from = x;
  std::optional<at::Tensor> more;
  if (delta.defined()) {
    expect_dims_like(delta, "delta", x, {"d", weight.size(0)});
    if (x.scalar_type() == delta.scalar_type()) {
      more = delta.contiguous();
    } else {
      from = x + delta;
    }
  }
  at::Tensor rstd;
  const variable_list values = RmsNormFunction::apply(from.contiguous(), weight, more, eps, &rstd);
  return {values[1], values[0], weight, rstd, eps};
}

at::Tensor rms_norm_again(const at::Tensor& sum, const at::Tensor& weight, double eps,
                          at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  return forward_values(sum, at::Tensor(), weight, eps, dtype).y;
}

}  // namespace lft::ops
