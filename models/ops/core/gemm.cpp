#include "models/ops/core/gemm.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <vector>

#include "models/ops/core/few_rows.h"

namespace lft::ops {
namespace {
at::Tensor wide(const at::Tensor& x) { return x.to(at::kFloat); }

/// Runs a widened product as one named region, so that profilers do not attribute its casts to the
/// caller.
template <class Product>
decltype(auto) widened(const Product& product) {
  RECORD_FUNCTION("lft::widened_product", std::vector<c10::IValue>{});
  return product();
}

/// Whether the library multiplies BF16 matrices faster than float32 ones. On x86 this requires AMX,
/// or AMD's avx512_bf16; Intel's reaches half the rate of its float32 products, emulated BF16
/// instructions a third, and with AVX2 the library uses plain loops on one thread.
bool has_bf16_gemm() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("amx-bf16") ||
                          (__builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel"));
  return has;
#else
  return true;
#endif
}
}  // namespace

bool widens_products(at::ScalarType dtype, const at::Device& device) {
  return device.is_cpu() && (dtype == at::kHalf || (dtype == at::kBFloat16 && !has_bf16_gemm()));
}

bool widens_products(const at::Tensor& x) { return widens_products(x.scalar_type(), x.device()); }

at::Tensor product(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (takes_few_rows(a_mk, b_kn)) return few_rows_product(a_mk, b_kn);
  if (!widens_products(a_mk)) return at::mm(a_mk, b_kn);
  return widened([&] { return at::mm(wide(a_mk), wide(b_kn)).to(a_mk.scalar_type()); });
}

void product_into(at::Tensor& out_mn, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (widens_products(a_mk)) {
    widened([&] { out_mn.copy_(at::mm(wide(a_mk), wide(b_kn))); });
  } else {
    at::mm_out(out_mn, a_mk, b_kn);
  }
}

at::Tensor affine(const at::Tensor& bias_n, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (takes_few_rows(a_mk, b_kn)) return few_rows_product(a_mk, b_kn, bias_n);
  if (!widens_products(a_mk)) return at::addmm(bias_n, a_mk, b_kn);
  return widened(
      [&] { return at::addmm(wide(bias_n), wide(a_mk), wide(b_kn)).to(a_mk.scalar_type()); });
}

void add_product(at::Tensor& y_mn, const at::Tensor& a_mk, const at::Tensor& b_kn, double alpha) {
  if (takes_few_rows(a_mk, b_kn)) {
    add_few_rows_product(y_mn, a_mk, b_kn, alpha);
  } else if (widens_products(a_mk)) {
    widened([&] { y_mn.copy_(wide(y_mn).addmm_(wide(a_mk), wide(b_kn), /*beta=*/1, alpha)); });
  } else {
    y_mn.addmm_(a_mk, b_kn, /*beta=*/1, alpha);
  }
}

void accumulate(at::Tensor& sum_mn, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (widens_products(a_mk)) {
    widened([&] { sum_mn.addmm_(wide(a_mk), wide(b_kn)); });
  } else {
    sum_mn.add_(at::mm(a_mk, b_kn));
  }
}

}  // namespace lft::ops
