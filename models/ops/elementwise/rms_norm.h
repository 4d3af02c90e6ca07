// y = w * s / sqrt(mean(s^2) + eps) over the last dimension, in float32, of s = x or of the
// residual sum s = x + delta, in one pass. Saves s and one number per row for the backward pass,
// which also adds the gradients of y and s in one pass.
#pragma once
#include <ATen/core/Tensor.h>

#include <utility>

namespace lft::ops {

/// The result of a norm with the values from which it can be recomputed. A plain tensor converts to
/// one that cannot.
struct Normed {
  Normed(at::Tensor y) : y(std::move(y)) {}
  Normed(at::Tensor y, at::Tensor sum, at::Tensor weight, at::Tensor rstd, double eps)
      : y(std::move(y)),
        sum(std::move(sum)),
        weight(std::move(weight)),
        rstd(std::move(rstd)),
        eps(eps) {}
  operator const at::Tensor&() const { return y; }
  bool can_be_rebuilt() const { return sum.defined(); }

  at::Tensor y;
  at::Tensor sum,
      weight;       // sum: s. Using it instead of x saves an addition of gradients
  at::Tensor rstd;  // float32 [..., 1]: 1 / sqrt(mean(s^2) + eps)
  double eps = 0;
};

/// y has the dtype op_dtype(), s the widest of x and delta (which may be undefined); gradients have
/// the dtypes of x, delta and w. A frozen w gets none.
Normed add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                    double eps);
inline at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return add_rms_norm(x, {}, weight, eps).y;
}

/// Recomputes y bitwise from s, without a graph.
at::Tensor rms_norm_again(const at::Tensor& sum, const at::Tensor& weight, double eps,
                          at::ScalarType dtype);

}  // namespace lft::ops
