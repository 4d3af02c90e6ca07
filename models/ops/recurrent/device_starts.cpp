#include "models/ops/recurrent/device_starts.h"

#include <ATen/ATen.h>

namespace lft::ops {

at::Tensor device_starts(const PackedSequences& sequences, at::Device device) {
  if (device.is_cpu() || sequences.starts_s1.defined()) return sequences.starts_s1;
  return at::tensor(sequences.starts, at::kLong).to(at::kInt).to(device);
}

}  // namespace lft::ops
