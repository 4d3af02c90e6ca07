// Rotary position embedding (Su et al. 2021), with half-split pairs as in Llama, in one pass. Saves
// only the angles.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// x [b, t, heads, e] rotated by float32 angles cos, sin [1 or b, t, e / 2]. The result is a new
/// contiguous tensor of x's dtype.
at::Tensor rope(const at::Tensor& x_bthe, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace lft::ops
