// The matrix products of the ops. FP16 products on a CPU, and BF16 products on an x86 CPU without
// AMX or AMD's avx512_bf16, run as float32 products of the widened operands with the result
// rounded: exact operands and float32 accumulation, as in tensor cores. The GEMMs of LibTorch would
// be 1.5 times to an order of magnitude slower there. Products of a few rows without a graph are
// computed by few_rows.h.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// Whether products of the dtype run as float32 products on the device. The widened copies are
/// freed after the product.
bool widens_products(at::ScalarType dtype, const at::Device& device);
/// The same for products of x.
bool widens_products(const at::Tensor& x);

/// a b in their common dtype. FP16 results beyond 65,504 are infinite.
at::Tensor product(const at::Tensor& a_mk, const at::Tensor& b_kn);
/// out = a b. out may be some columns of a larger matrix.
void product_into(at::Tensor& out_mn, const at::Tensor& a_mk, const at::Tensor& b_kn);
/// bias + a b, rounded once.
at::Tensor affine(const at::Tensor& bias_n, const at::Tensor& a_mk, const at::Tensor& b_kn);
/// y += alpha a b, rounded once.
void add_product(at::Tensor& y_mn, const at::Tensor& a_mk, const at::Tensor& b_kn,
                 double alpha = 1);
/// sum += a b for a float32 sum of many products.
void accumulate(at::Tensor& sum_mn, const at::Tensor& a_mk, const at::Tensor& b_kn);

}  // namespace lft::ops
