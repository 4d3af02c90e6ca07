// Products in FP8: the rows of both operands are float8_e4m3fn with one float32 scale per row
// (kernels/fp8/fp8.h). GPUs of compute capability 8.9 and up support them; elsewhere the same codes
// are multiplied in float32, slowly, with the same values except for the order of sums. Shape
// letters: m n rows, k summed dimension, t tokens, i in, o out.
#pragma once
#include "models/ops/weight/weight.h"

namespace lft::ops {

struct Fp8Matrix {
  at::Tensor codes_mk;   // float8_e4m3fn, row-major
  at::Tensor scales_m1;  // float32
};

/// Quantizes float32, bfloat16 or float16 on the device of x. A row with a NaN or an infinity
/// becomes NaN.
Fp8Matrix quantize_rows(const at::Tensor& x_mk);

/// a b^T, accumulated in float32 and rounded once, to bfloat16 or float16. n and k are multiples of
/// kFp8Multiple.
at::Tensor fp8_product(const Fp8Matrix& a_mk, const Fp8Matrix& b_nk, at::ScalarType dtype);
constexpr int64_t kFp8Multiple = 16;  // required by the GPU's products

/// Whether the device computes products in FP8.
bool has_fp8_products(at::Device device);

/// A frozen weight, quantized twice from the original: products on the GPU need the summed
/// dimension innermost in both operands, and a constant scale along it. So W has one scale per
/// output for y = x W^T, and W^T one per input for dx = dy W. Two bytes per element, as BF16, and 4
/// (o + i) for the scales. Activations and gradients are quantized to e4m3 with a scale per token,
/// which makes the range of e5m2 unnecessary. In float32 only the weight is quantized: products use
/// the first copy, dequantized.
struct Fp8Storage : CodedWeight {
  Fp8Matrix weight_oi, transposed_io;
  BaseStorage kind() const override { return BaseStorage::kFp8; }
  std::vector<std::pair<std::string, at::Tensor>> parts() const override;
  c10::intrusive_ptr<CodedWeight> with(const std::vector<at::Tensor>& parts) const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  at::Tensor product(const at::Tensor& x_ti, const at::Tensor& bias_o) const override;
  at::Tensor product_backward(const at::Tensor& dy_to) const override;
};

/// Shapes only, without values.
c10::intrusive_ptr<Fp8Storage> empty_fp8(int64_t out, int64_t in, at::Device device);
/// Quantizes on `device`.
c10::intrusive_ptr<Fp8Storage> quantize_fp8(const at::Tensor& weight_oi, at::Device device);

}  // namespace lft::ops
