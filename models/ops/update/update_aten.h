// check_gradients(), adamw_() and adamw8_() in plain ATen ops: what a GPU does in a build without
// the CUDA kernels. No host sync either.
#pragma once
#include "models/ops/update/adamw8.h"

namespace lft::ops {

/// gradients: contiguous or undefined. loss: double or undefined.
GradVerdict check_gradients_aten(const std::vector<at::Tensor>& gradients, float inv_scale,
                                 double max_norm, const at::Tensor& loss, at::Device device);
void adamw_aten_(const std::vector<AdamWTensor>& tensors, const AdamWOptions& options,
                 const GradVerdict& verdict);
void adamw8_aten_(const std::vector<AdamW8Tensor>& tensors, const AdamWOptions& options,
                  const GradVerdict& verdict);
/// The verdict's own as scalar tensors: 0 or 1, and what gradients are multiplied by.
at::Tensor found_inf(const GradVerdict& verdict);
at::Tensor clip_of(const GradVerdict& verdict);

}  // namespace lft::ops
