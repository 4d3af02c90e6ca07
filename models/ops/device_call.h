// What an op needs to hand a tensor to a CUDA kernel. Only for sources that are compiled with LFT_HAVE_CUDA (models/CMakeLists.txt).
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "models/ops/float_types.h"

namespace lft {

/// Whether a kernel takes the tensor as it is.
inline bool has_kernel(const at::Tensor& x) { return x.is_cuda() && x.is_contiguous() && float_type(x.scalar_type()).has_value(); }
template <class... More>
bool has_kernel(const at::Tensor& x, const More&... more) {
  return has_kernel(x) && (has_kernel(more) && ...);
}

/// body(stream) with the tensor's device current and its current stream.
template <class Body>
void on_device_of(const at::Tensor& x, const Body& body) {
  const c10::cuda::CUDAGuard device(x.device());
  body(static_cast<Stream>(c10::cuda::getCurrentCUDAStream().stream()));
}

}  // namespace lft
