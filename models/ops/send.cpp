#include "models/ops/send.h"

#include <ATen/ATen.h>

#include "models/ops/dispatch.h"

namespace lft {

at::Tensor send(const at::Tensor& host, at::Device device) {
  if (host.device() == device) return host;
  if (!runs_kernels(device)) return host.to(device);
  return host.pin_memory().to(device, host.scalar_type(), /*non_blocking=*/true);
}

}  // namespace lft
