#include "models/ops/weight/weight.h"

#include <ATen/Functions.h>

#include "kernels/common/error.h"
#include "models/ops/core/gemm.h"
#include "models/ops/weight/fp8.h"
#include "models/ops/weight/nf4.h"

namespace lft::ops {
namespace {

at::Tensor dense_product(const at::Tensor& x_ti, const at::Tensor& weight_oi,
                         const at::Tensor& bias_o) {
  return bias_o.defined() ? affine(bias_o.to(x_ti.scalar_type()), x_ti, weight_oi.t())
                          : product(x_ti, weight_oi.t());
}

}  // namespace

at::Tensor CodedWeight::product(const at::Tensor& x_ti, const at::Tensor& bias_o) const {
  return dense_product(x_ti, dense(x_ti.scalar_type()), bias_o);
}

at::Tensor CodedWeight::product_backward(const at::Tensor& dy_to) const {
  return lft::ops::product(dy_to, dense(dy_to.scalar_type()));
}

c10::intrusive_ptr<CodedWeight> code_shapes(int64_t out, int64_t in, BaseStorage storage) {
  switch (storage) {
    case BaseStorage::kNf4:
      return empty_nf4(out, in, at::kMeta);
    case BaseStorage::kFp8:
      return empty_fp8(out, in, at::kMeta);
    case BaseStorage::kDense:
    case BaseStorage::kElsewhere:
      break;
  }
  throw Error(ErrorKind::kInternal, "code_shapes: a dense weight has no codes");
}

c10::intrusive_ptr<CodedWeight> quantize(const at::Tensor& weight_oi, BaseStorage storage,
                                         at::Device device) {
  switch (storage) {
    case BaseStorage::kNf4:
      return quantize_nf4(weight_oi, device);
    case BaseStorage::kFp8:
      return quantize_fp8(weight_oi, device);
    case BaseStorage::kDense:
    case BaseStorage::kElsewhere:
      break;
  }
  throw Error(ErrorKind::kInternal, "quantize: a dense weight has no codes");
}

at::Tensor weight_product(const at::Tensor& x_ti, const Weight& weight_oi,
                          const at::Tensor& bias_o) {
  return weight_oi.coded() ? weight_oi.coded()->product(x_ti, bias_o)
                           : dense_product(x_ti, weight_oi.to(x_ti.scalar_type()), bias_o);
}

at::Tensor weight_product_backward(const at::Tensor& dy_to, const Weight& weight_oi) {
  return weight_oi.coded() ? weight_oi.coded()->product_backward(dy_to)
                           : product(dy_to, weight_oi.to(dy_to.scalar_type()));
}

}  // namespace lft::ops
