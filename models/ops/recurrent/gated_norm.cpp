#include "models/ops/recurrent/gated_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/base/dims.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/parallel.h"
#include "models/ops/recurrent/recurrent_loops.h"

namespace lft::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor inverse_roots(const at::Tensor& wide, double eps) {
  return at::rsqrt(at::mean(wide * wide, -1, /*keepdim=*/true) + eps);
}

/// Of ATen ops, under autograd.
at::Tensor composed_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                         double eps) {
  const at::ScalarType type = x.scalar_type(),
                       wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor from = x.to(wide), normed = (from * inverse_roots(from, eps)).to(type);
  return ((weight * normed).to(wide) * at::silu(gate.to(wide))).to(type);
}

/// body(first row, rows) for parts of all rows.
template <class Body>
void over_rows(const at::Tensor& x, const Body& body) {
  const int64_t cols = x.size(-1), rows = cols == 0 ? 0 : x.numel() / cols;
  parallel_for(rows, kLoopGrain / (cols + 1) + 1,
               [&](int64_t begin, int64_t end) { body(begin, end - begin); });
}

struct GatedNormFunction : torch::autograd::Function<GatedNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& weight, double eps) {
    ctx->save_for_backward({x, gate, weight});
    ctx->saved_data["eps"] = eps;
    const at::Tensor w = weight.to(at::kFloat).contiguous();
    at::Tensor y = at::empty_like(x);
    const bool narrow = weight.scalar_type() == x.scalar_type();
    with_loop_type(x.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      over_rows(x, [&](int64_t first, int64_t rows) {
        const int64_t cols = x.size(-1), at = first * cols;
        loops::gated_norm(loops::GatedNormRows<T>{
            x.const_data_ptr<T>() + at, gate.const_data_ptr<T>() + at, w.const_data_ptr<float>(),
            y.mutable_data_ptr<T>() + at, rows, cols, static_cast<float>(eps), narrow});
      });
    });
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &gate = saved[1], &weight = saved[2],
                     dy = gradients[0].contiguous(), w = weight.to(at::kFloat).contiguous();
    const double eps = ctx->saved_data["eps"].toDouble();
    at::Tensor dx = at::empty_like(x), dgate = at::empty_like(gate), dweight;
    with_loop_type(x.scalar_type(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      over_rows(x, [&](int64_t first, int64_t rows) {
        const int64_t cols = x.size(-1), at = first * cols;
        loops::gated_norm_backward(loops::GatedNormGradients<T>{
            dy.const_data_ptr<T>() + at, x.const_data_ptr<T>() + at, gate.const_data_ptr<T>() + at,
            w.const_data_ptr<float>(), dx.mutable_data_ptr<T>() + at,
            dgate.mutable_data_ptr<T>() + at, rows, cols, static_cast<float>(eps)});
      });
    });
    if (ctx->needs_input_grad(2)) {
      const at::Tensor wide = x.to(at::kFloat);
      dweight =
          (dy.to(at::kFloat) * at::silu(gate.to(at::kFloat)) * wide * inverse_roots(wide, eps))
              .reshape({-1, x.size(-1)})
              .sum(0)
              .to(weight.scalar_type());
    }
    return {dx, dgate, dweight, at::Tensor()};
  }
};

}  // namespace

at::Tensor gated_rms_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                          double eps) {
  expect_last_dim(x, "x", {"d", weight.size(0)});
  expect_dims_like(gate, "gate", x, {"d", weight.size(0)});
  const at::ScalarType type = x.scalar_type();
  if (!x.device().is_cpu() || !has_loop_type(type) || gate.scalar_type() != type)
    return composed_norm(x, gate, weight, eps);
  return GatedNormFunction::apply(x.contiguous(), gate.contiguous(), weight, eps);
}

}  // namespace lft::ops
