// The starts of packed sequences for kernels.
#pragma once
#include "models/ops/attention/attention.h"

namespace lft::ops {

/// int32 [s + 1, perhaps more] on the device; undefined for a CPU. Copied from the host unless the
/// sequences have them.
at::Tensor device_starts(const PackedSequences& sequences, at::Device device);

}  // namespace lft::ops
