// The gated delta rule on a CPU, without autograd.
#pragma once
#include "models/ops/recurrent/gated_delta.h"

namespace lft::ops {

/// For float32, BFloat16, Half and float64, whose rows (the last two dimensions) are dense; g and
/// beta are contiguous and float32, or float64 with float64. All key heads of all sequences run in
/// parallel, and the number of threads changes no bit.
DeltaResult cpu_delta_rule(const DeltaInput& in, const PackedSequences& sequences,
                           const at::Tensor& state_snde, bool final_state);

/// The gradients of the inputs of cpu_delta_rule(), in their dtypes. For its time a thread keeps
/// the states before all chunks of a sequence: n / h * d * e floats for 64 tokens.
DeltaInput cpu_delta_gradients(const DeltaInput& in, const PackedSequences& sequences,
                               const at::Tensor& state_snde, const at::Tensor& dout_tne);

}  // namespace lft::ops
