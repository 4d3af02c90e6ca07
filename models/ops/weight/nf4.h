// Weights in NF4 (kernels/nf4/nf4.h): about 4.127 bits per element.
#pragma once
#include "models/ops/weight/weight.h"

namespace lft::ops {

struct Nf4Storage : CodedWeight {
  at::Tensor codes, scale_codes;  // uint8, two elements per byte; uint8, one per block
  at::Tensor scale_absmax;        // float32, one for 256 blocks
  at::Tensor scale_values;        // float32 [256], values of the scale codes, equal for all weights
  double scale_offset = 0;
  BaseStorage kind() const override { return BaseStorage::kNf4; }
  std::vector<std::pair<std::string, at::Tensor>> parts() const override;
  c10::intrusive_ptr<CodedWeight> with(const std::vector<at::Tensor>& parts) const override;
  at::Tensor dense(at::ScalarType dtype) const override;
};

/// Shapes only, without values.
c10::intrusive_ptr<Nf4Storage> empty_nf4(int64_t out, int64_t in, at::Device device);
/// Quantizes on the CPU; the codes are on `device`.
c10::intrusive_ptr<Nf4Storage> quantize_nf4(const at::Tensor& weight_oi, at::Device device);

}  // namespace lft::ops
