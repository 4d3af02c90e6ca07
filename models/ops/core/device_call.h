// Helpers to call a CUDA kernel with tensors. Only for sources that are compiled with LFT_HAVE_CUDA
// (models/CMakeLists.txt).
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kernels/common/float_type.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/float_types.h"

namespace lft::ops {

/// Whether a kernel accepts the tensor without a copy.
inline bool has_kernel(const at::Tensor& x) {
  return runs_kernels(x.device()) && x.is_contiguous() && float_type(x.scalar_type()).has_value();
}
template <class... More>
bool has_kernel(const at::Tensor& x, const More&... more) {
  return has_kernel(x) && (has_kernel(more) && ...);
}

/// Calls body(stream) with the device and its current stream.
template <class Body>
void on_device(at::Device device, const Body& body) {
  const c10::DeviceGuard guard(device);
  const c10::impl::VirtualGuardImpl of_type(device.type());
  body(static_cast<Stream>(of_type.getStreamNativeHandle(of_type.getStream(device))));
}
template <class Body>
void on_device_of(const at::Tensor& x, const Body& body) {
  on_device(x.device(), body);
}

}  // namespace lft::ops
