#include "models/ops/send.h"

#include <ATen/ATen.h>

namespace lft {

at::Tensor send(const at::Tensor& host, at::Device device) {
  return device.is_cuda() ? host.pin_memory().to(device, host.scalar_type(), /*non_blocking=*/true) : host.to(device);
}

}  // namespace lft
