// What a linear layer multiplies with: a dense tensor, or codes that become one for as long as a product needs it.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <utility>

namespace lft {

/// A frozen [o, i] weight in NF4 (kernels/nf4/nf4.h): about 4.127 bits an element.
struct Nf4Storage : torch::CustomClassHolder {
  int64_t out = 0, in = 0;
  at::Tensor codes, scale_codes;  // uint8, two elements a byte; uint8, one a block
  at::Tensor scale_absmax;        // float32, one for 256 blocks
  at::Tensor scale_values;        // float32 [256], what a scale code stands for
  double scale_offset = 0;
  int64_t nbytes() const;
};

/// Quantises a finite float32 CPU tensor [o, i]; the codes then live on `device`.
c10::intrusive_ptr<Nf4Storage> quantize_nf4(const at::Tensor& weight_oi, at::Device device);
/// [o, i] of float32, bfloat16 or float16, where the codes live.
at::Tensor dequantize(const Nf4Storage& storage, at::ScalarType dtype);

class Weight {
 public:
  Weight(at::Tensor dense_oi) : dense_(std::move(dense_oi)) {}
  Weight(c10::intrusive_ptr<Nf4Storage> nf4) : nf4_(std::move(nf4)) {}

  int64_t out() const { return nf4_ ? nf4_->out : dense_.size(0); }
  int64_t in() const { return nf4_ ? nf4_->in : dense_.size(1); }
  bool trains() const { return dense_.defined() && dense_.requires_grad(); }
  /// Dense in `dtype`: the tensor itself where it has it, else a copy.
  at::Tensor to(at::ScalarType dtype) const { return nf4_ ? dequantize(*nf4_, dtype) : dense_.to(dtype); }

  const at::Tensor& dense() const { return dense_; }  // undefined where there are codes
  const c10::intrusive_ptr<Nf4Storage>& nf4() const { return nf4_; }

 private:
  at::Tensor dense_;
  c10::intrusive_ptr<Nf4Storage> nf4_;
};

}  // namespace lft
