// Selects the fused CPU loop for a tensor, if there is one for its device and dtype; else a kernel
// or ATen ops are used.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace lft::ops {

inline bool has_loop_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}
/// The loops require contiguous CPU memory of float, BFloat16 or Half.
inline bool has_loop(const at::Tensor& x) {
  return x.device().is_cpu() && has_loop_type(x.scalar_type()) && x.is_contiguous();
}

/// Calls body with a null pointer of the element type: body(static_cast<T*>(nullptr)).
template <class Body>
void with_loop_type(at::ScalarType type, const Body& body) {
  if (type == at::kFloat) return body(static_cast<float*>(nullptr));
  if (type == at::kHalf) return body(static_cast<c10::Half*>(nullptr));
  return body(static_cast<c10::BFloat16*>(nullptr));
}

/// Whether lft's kernels run on the device, which has separate memory and streams.
inline bool runs_kernels(at::Device device) { return !device.is_cpu() && !device.is_meta(); }

constexpr int64_t kLoopGrain = 16384;  // minimum number of elements per thread

}  // namespace lft::ops
