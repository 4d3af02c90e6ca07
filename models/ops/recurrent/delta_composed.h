// The gated delta rule of ATen ops under autograd, for devices and sizes without a kernel.
#pragma once
#include "models/ops/recurrent/gated_delta.h"

namespace lft::ops {

/// gated_delta_rule() for checked inputs.
DeltaResult composed_delta_rule(const DeltaInput& in, const PackedSequences& sequences,
                                const at::Tensor& state_snde, bool final_state);

}  // namespace lft::ops
