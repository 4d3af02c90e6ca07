#include "models/ops/core/copy_to_device.h"

#include <ATen/ATen.h>

#include "models/ops/core/dispatch.h"

namespace lft::ops {

at::Tensor copy_to_device(const at::Tensor& host, at::Device device) {
  if (host.device() == device) return host;
  if (!runs_kernels(device)) return host.to(device);
  return host.pin_memory().to(device, host.scalar_type(), /*non_blocking=*/true);
}

}  // namespace lft::ops
