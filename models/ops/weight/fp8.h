// Products in FP8: both operands as rows of float8_e4m3fn with one float32 scale a row
// (kernels/fp8/fp8.h). GPUs of compute capability 8.9 and up have them; elsewhere the same codes
// are multiplied in float32: the same values but for the order of a sum, slowly. Shape letters: m n
// rows, k what is summed over, t tokens, i in, o out.
#pragma once
#include "models/ops/weight/weight.h"

namespace lft::ops {

struct Fp8Matrix {
  at::Tensor codes_mk;   // float8_e4m3fn, row-major
  at::Tensor scales_m1;  // float32
};

/// Of float32, bfloat16 or float16, where x is. A row with a NaN or an infinity becomes NaN all
/// through.
Fp8Matrix quantize_rows(const at::Tensor& x_mk);

/// a b^T, accumulated in float32 and rounded once, to bfloat16 or float16. n and k are multiples of
/// kFp8Multiple.
at::Tensor fp8_product(const Fp8Matrix& a_mk, const Fp8Matrix& b_nk, at::ScalarType dtype);
constexpr int64_t kFp8Multiple = 16;  // of the GPU's products

/// Whether products of the device's tensors run in FP8 there.
bool has_fp8_products(at::Device device);

/// A frozen weight twice over, both quantised from the original: the GPU's products want the summed
/// dimension innermost in both operands, and a scale must not vary along it. So W has a scale an
/// output for y = x W^T, and W^T has one an input for dx = dy W. Two bytes an element, as in BF16,
/// and 4 (o + i) for the scales. Activations and gradients are quantised a token at a time, both to
/// e4m3: with a scale a token the range of e5m2 is not needed, its missing bit is. In float32
/// nothing is quantised but the weight: products are those of the first copy made dense.
struct Fp8Storage : CodedWeight {
  Fp8Matrix weight_oi, transposed_io;
  BaseStorage kind() const override { return BaseStorage::kFp8; }
  std::vector<std::pair<std::string, at::Tensor>> parts() const override;
  c10::intrusive_ptr<CodedWeight> with(const std::vector<at::Tensor>& parts) const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  at::Tensor product(const at::Tensor& x_ti, const at::Tensor& bias_o) const override;
  at::Tensor product_backward(const at::Tensor& dy_to) const override;
};

/// Without values.
c10::intrusive_ptr<Fp8Storage> empty_fp8(int64_t out, int64_t in, at::Device device);
/// Quantised on `device`.
c10::intrusive_ptr<Fp8Storage> quantize_fp8(const at::Tensor& weight_oi, at::Device device);

}  // namespace lft::ops
