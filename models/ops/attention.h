// softmax(q k^T / sqrt(e)) v, without ever holding the whole matrix of scores. Shape letters: b batch, h heads, t s positions, e head size.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft {

/// q [b, h, t, e], k and v [b, h, s, e] of one dtype -> that dtype, softmax in float32. `mask` (bool, broadcast to [b, h, t, s]) says what
/// is seen; undefined: everything, or with `causal` what is not behind a position. FP16 on a CPU runs in float32 and is rounded.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask, bool causal);

}  // namespace lft
