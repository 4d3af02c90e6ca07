#include "models/ops/core/gemm.h"

#include <ATen/ATen.h>

#include "models/ops/core/few_rows.h"

namespace lft::ops {
namespace {
at::Tensor wide(const at::Tensor& x) { return x.to(at::kFloat); }
}  // namespace

bool widens_products(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf && x.device().is_cpu();
}

at::Tensor product(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (takes_few_rows(a_mk, b_kn)) return few_rows_product(a_mk, b_kn);
  return widens_products(a_mk) ? at::mm(wide(a_mk), wide(b_kn)).to(at::kHalf) : at::mm(a_mk, b_kn);
}

void product_into(at::Tensor& out_mn, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (widens_products(a_mk)) {
    out_mn.copy_(at::mm(wide(a_mk), wide(b_kn)));
  } else {
    at::mm_out(out_mn, a_mk, b_kn);
  }
}

at::Tensor affine(const at::Tensor& bias_n, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (takes_few_rows(a_mk, b_kn)) return few_rows_product(a_mk, b_kn, bias_n);
  if (!widens_products(a_mk)) return at::addmm(bias_n, a_mk, b_kn);
  return at::addmm(wide(bias_n), wide(a_mk), wide(b_kn)).to(at::kHalf);
}

void add_product(at::Tensor& y_mn, const at::Tensor& a_mk, const at::Tensor& b_kn, double alpha) {
  if (takes_few_rows(a_mk, b_kn)) {
    add_few_rows_product(y_mn, a_mk, b_kn, alpha);
  } else if (widens_products(a_mk)) {
    y_mn.copy_(wide(y_mn).addmm_(wide(a_mk), wide(b_kn), /*beta=*/1, alpha));
  } else {
    y_mn.addmm_(a_mk, b_kn, /*beta=*/1, alpha);
  }
}

void accumulate(at::Tensor& sum_mn, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (widens_products(a_mk)) {
    sum_mn.addmm_(wide(a_mk), wide(b_kn));
  } else {
    sum_mn.add_(at::mm(a_mk, b_kn));
  }
}

}  // namespace lft::ops
