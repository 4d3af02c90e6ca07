// silu(causal depthwise convolution) over packed sequences, the short convolution before a
// recurrence. Letters: t tokens of all sequences, c channels, w taps, s sequences.
#pragma once
#include <ATen/core/Tensor.h>

#include "models/ops/attention/attention.h"

namespace lft::ops {

struct ConvResult {
  at::Tensor out_tc;     // the dtype of x
  at::Tensor last_scw1;  // [s, c, w - 1] of the dtype of x: the last inputs of each sequence, or
                         // undefined if they were not asked for
};

/// out[i] = silu(sum_j weight[:, j] x[i - (w - 1) + j]). Before a sequence there are the inputs
/// first_scw1, of an earlier pass, or zeros if it is undefined. The sum is rounded to the dtype of
/// x before silu. No gradient passes through first_scw1 and last_scw1; a frozen weight gets none.
///
/// Saved for the backward pass: x, c * its size bytes a token.
ConvResult causal_conv_silu(const at::Tensor& x_tc, const at::Tensor& weight_cw,
                            const PackedSequences& sequences, const at::Tensor& first_scw1 = {},
                            bool last = false);

}  // namespace lft::ops
