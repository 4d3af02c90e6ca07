// What a linear layer multiplies with: a dense tensor, or codes of fewer bits that stand for one.
// Shape letters: t rows, i in, o out.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

#include "models/ops/weight/base_storage.h"

namespace lft::ops {

/// A frozen weight in codes, or elsewhere.
struct CodedWeight : torch::CustomClassHolder {
  int64_t out = 0, in = 0;
  virtual BaseStorage kind() const = 0;
  /// The tensors of this process that it consists of, by name; all are where the codes are.
  virtual std::vector<std::pair<std::string, at::Tensor>> parts() const = 0;
  /// The same codes in other tensors, of the shapes and in the order of parts().
  virtual c10::intrusive_ptr<CodedWeight> with(const std::vector<at::Tensor>& parts) const = 0;
  virtual at::Device device() const { return parts().front().second.device(); }
  /// [o, i] of float32, bfloat16 or float16, where the codes are.
  virtual at::Tensor dense(at::ScalarType dtype) const = 0;
  /// Whether dense() of it is not the caller's to write to.
  virtual bool can_alias_as(at::ScalarType) const { return false; }
  /// x W^T (+ b) and dy W in the dtype of x and of dy. Here with the weight made dense for as long
  /// as the product takes.
  virtual at::Tensor product(const at::Tensor& x_ti, const at::Tensor& bias_o) const;
  virtual at::Tensor product_backward(const at::Tensor& dy_to) const;
};

/// What quantize() would give of a weight [o, i], without values: its parts are on the device meta.
c10::intrusive_ptr<CodedWeight> code_shapes(int64_t out, int64_t in, BaseStorage storage);
/// Codes of a finite [o, i] tensor of float32, bfloat16 or float16; they live on `device`.
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
  /// Dense in `dtype`: the tensor itself where it has it, else a copy.
  at::Tensor to(at::ScalarType dtype) const {
    return coded_ ? coded_->dense(dtype) : dense_.to(dtype);
  }
  /// Whether to() gives what others read, too.
  bool can_alias_as(at::ScalarType dtype) const {
    return coded_ ? coded_->can_alias_as(dtype) : dense_.scalar_type() == dtype;
  }

  const at::Tensor& dense() const { return dense_; }  // undefined where there are codes
  const c10::intrusive_ptr<CodedWeight>& coded() const { return coded_; }

 private:
  at::Tensor dense_;
  c10::intrusive_ptr<CodedWeight> coded_;
};

/// x W^T (+ b) in x's dtype.
at::Tensor weight_product(const at::Tensor& x_ti, const Weight& weight_oi,
                          const at::Tensor& bias_o);
/// dy W in dy's dtype: what the product's gradient is to x.
at::Tensor weight_product_backward(const at::Tensor& dy_to, const Weight& weight_oi);

}  // namespace lft::ops
