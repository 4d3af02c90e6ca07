// The weight of a linear layer: dense, or quantized. Shape letters: t rows, i in, o out.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

#include "models/ops/weight/base_storage.h"

namespace lft::ops {

/// A frozen weight that is quantized or stored elsewhere.
struct CodedWeight : torch::CustomClassHolder {
  int64_t out = 0, in = 0;
  virtual BaseStorage kind() const = 0;
  /// Its tensors in this process, by name, all on one device.
  virtual std::vector<std::pair<std::string, at::Tensor>> parts() const = 0;
  /// The same weight over other tensors, with the shapes and in the order of parts().
  virtual c10::intrusive_ptr<CodedWeight> with(const std::vector<at::Tensor>& parts) const = 0;
  virtual at::Device device() const { return parts().front().second.device(); }
  /// Dequantizes to float32, bfloat16 or float16: [o, i], on the same device.
  virtual at::Tensor dense(at::ScalarType dtype) const = 0;
  /// Whether the result of dense() may alias memory of the weight, so that the caller must not
  /// write to it.
  virtual bool can_alias_as(at::ScalarType) const { return false; }
  /// x W^T (+ b) and dy W in the dtype of x and of dy. By default the weight is dequantized for the
  /// duration of the product.
  virtual at::Tensor product(const at::Tensor& x_ti, const at::Tensor& bias_o) const;
  virtual at::Tensor product_backward(const at::Tensor& dy_to) const;
};

/// The result of quantize() for a weight [o, i], without values: its parts are on the device meta.
c10::intrusive_ptr<CodedWeight> code_shapes(int64_t out, int64_t in, BaseStorage storage);
/// Quantizes a finite [o, i] tensor of float32, bfloat16 or float16; the result is on `device`.
c10::intrusive_ptr<CodedWeight> quantize(const at::Tensor& weight_oi, BaseStorage storage,
                                         at::Device device);

class Weight {
 public:
  Weight(at::Tensor dense_oi) : dense_(std::move(dense_oi)) {}
  Weight(c10::intrusive_ptr<CodedWeight> coded) : coded_(std::move(coded)) {}

  int64_t out() const { return coded_ ? coded_->out : dense_.size(0); }
  int64_t in() const { return coded_ ? coded_->in : dense_.size(1); }
  BaseStorage kind() const { return coded_ ? coded_->kind() : BaseStorage::kDense; }
  bool trains() const { return dense_.defined() && dense_.requires_grad(); }
  /// The dense weight in `dtype`: the tensor itself if it has that dtype, else a copy.
  at::Tensor to(at::ScalarType dtype) const {
    return coded_ ? coded_->dense(dtype) : dense_.to(dtype);
  }
  /// Whether the result of to() may alias memory of the weight.
  bool can_alias_as(at::ScalarType dtype) const {
    return coded_ ? coded_->can_alias_as(dtype) : dense_.scalar_type() == dtype;
  }

  const at::Tensor& dense() const { return dense_; }  // undefined if quantized
  const c10::intrusive_ptr<CodedWeight>& coded() const { return coded_; }

 private:
  at::Tensor dense_;
  c10::intrusive_ptr<CodedWeight> coded_;
};

/// x W^T (+ b) in x's dtype.
at::Tensor weight_product(const at::Tensor& x_ti, const Weight& weight_oi,
                          const at::Tensor& bias_o);
/// dy W in the dtype of dy: the gradient of x.
at::Tensor weight_product_backward(const at::Tensor& dy_to, const Weight& weight_oi);

}  // namespace lft::ops
