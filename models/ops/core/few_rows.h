// Products of a few rows with a weight, as in decoding on a CPU. They take as long as reading the
// weight, while the GEMM of a library packs it first.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// During its lifetime, on this thread, gemm.h uses these products if they apply, or with `takes`
/// false never. For passes without a graph; products of training have the same bits with and
/// without this guard.
class FewRowsGuard {
 public:
  explicit FewRowsGuard(bool takes = true);
  ~FewRowsGuard();
  FewRowsGuard(const FewRowsGuard&) = delete;

 private:
  bool previous_;
};

/// Whether a guard is active and `a` is on a CPU, has a dtype with loops, contiguous rows, and few
/// enough rows.
bool takes_few_rows(const at::Tensor& a_mk);
/// Whether a guard is active and few_rows_product() supports these tensors: both on a CPU, of one
/// dtype with loops, with contiguous rows of a and columns of b, and few enough rows of a.
bool takes_few_rows(const at::Tensor& a_mk, const at::Tensor& b_kn);

/// bias + a b in their common dtype, summed in float32 and rounded once. The bias may be undefined.
/// A row of the result depends neither on the number of rows nor on the number of threads.
at::Tensor few_rows_product(const at::Tensor& a_mk, const at::Tensor& b_kn,
                            const at::Tensor& bias_n = {});
/// y += alpha a b, rounded once. y has the dtype of a and b and the rows of a.
void add_few_rows_product(const at::Tensor& y_mn, const at::Tensor& a_mk, const at::Tensor& b_kn,
                          double alpha);

}  // namespace lft::ops
