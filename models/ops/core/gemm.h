// The ops' matrix products, and where they run. FP16 products on a CPU, and BF16 products on an x86
// without AVX-512, are float32 products of the widened operands with the result rounded: exact
// operands and float32 accumulation, as tensor cores compute them, where LibTorch's GEMMs would be
// an order of magnitude slower. Those of a few rows without a graph have a separate way
// (few_rows.h).
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// Whether products of the dtype run as float32 ones on the device. The widened copies live as long
/// as the product.
bool widens_products(at::ScalarType dtype, const at::Device& device);
/// The same for products of x.
bool widens_products(const at::Tensor& x);

/// a b, in the dtype of both. Beyond 65,504 an FP16 result is infinite.
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
