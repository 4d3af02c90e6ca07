// Products of a few rows with a weight, as decoding makes them on a CPU: they take as long as the
// weight takes to be read, where a library's GEMM packs it first.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// While it lives, on this thread: the products of gemm.h take this way where it fits. For passes
/// of which no graph is built; those of training keep the bits that they have with a graph.
class FewRowsGuard {
 public:
  FewRowsGuard();
  ~FewRowsGuard();
  FewRowsGuard(const FewRowsGuard&) = delete;

 private:
  bool previous_;
};

/// Whether a guard lives and a is on a CPU, of a dtype with loops, with the numbers of each row
/// beside each other, and has no more rows than pay.
bool takes_few_rows(const at::Tensor& a_mk);
/// Whether a guard lives and few_rows_product() takes these: both on a CPU, of one dtype with
/// loops, the numbers of each row of a and of each column of b beside each other, and no more rows
/// of a than pay.
bool takes_few_rows(const at::Tensor& a_mk, const at::Tensor& b_kn);

/// bias + a b in the dtype of all, summed in float32 and rounded once. The bias may be undefined.
/// What a row becomes does not depend on how many rows there are, nor on the number of threads.
at::Tensor few_rows_product(const at::Tensor& a_mk, const at::Tensor& b_kn,
                            const at::Tensor& bias_n = {});
/// y += alpha a b, rounded once. y is of their dtype, with rows as a's.
void add_few_rows_product(const at::Tensor& y_mn, const at::Tensor& a_mk, const at::Tensor& b_kn,
                          double alpha);

}  // namespace lft::ops
