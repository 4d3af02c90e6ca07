// What an op needs to hand a tensor to a CUDA kernel; without CUDA in the build every tensor stays with ATen.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/common/error.h"
#include "kernels/common/float_type.h"
#ifdef LFT_HAVE_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace lft {

inline std::optional<FloatType> float_type(at::ScalarType dtype) {
  if (dtype == at::kFloat) return FloatType::kF32;
  if (dtype == at::kBFloat16) return FloatType::kBF16;
  if (dtype == at::kHalf) return FloatType::kF16;
  return std::nullopt;
}

#ifdef LFT_HAVE_CUDA
/// Whether a kernel takes the tensor as it is.
inline bool has_kernel(const at::Tensor& x) { return x.is_cuda() && x.is_contiguous() && float_type(x.scalar_type()).has_value(); }
#else
inline bool has_kernel(const at::Tensor&) { return false; }
#endif
template <class... More>
bool has_kernel(const at::Tensor& x, const More&... more) {
  return has_kernel(x) && (has_kernel(more) && ...);
}

/// body(stream) with the tensor's device current and its current stream. Only where has_kernel() holds.
template <class Body>
void on_device_of(const at::Tensor& x, const Body& body) {
#ifdef LFT_HAVE_CUDA
  const c10::cuda::CUDAGuard device(x.device());
  body(static_cast<Stream>(c10::cuda::getCurrentCUDAStream().stream()));
#else
  throw Error(ErrorKind::kInternal, "a kernel call in a build without CUDA");
#endif
}

}  // namespace lft
