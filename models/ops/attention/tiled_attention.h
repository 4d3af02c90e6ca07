// Attention on a CPU in tiles, whose products are oneDNN's own. LibTorch's BF16 attention has fast
// products where the processor has AMX; elsewhere it asks MKL, which is slow on processors that are
// not Intel's. Shape letters: b batch, h heads, t queries, s keys, e head size.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// Whether tiled_attention() takes these, and is faster than LibTorch: BFloat16 on a CPU with
/// avx512_bf16 and without AMX, an even head size, and as many keys as queries where `causal`.
bool fits_tiles(const at::Tensor& q_bhte, const at::Tensor& k_bhse, bool causal);

/// softmax(q k^T / sqrt(e)) v -> [b, h, t, e], whose memory is [b, t, h, e]. Scores, softmax and
/// sums are float32; its result is the same for every number of threads. `causal`: query i sees the
/// keys up to i. Seen by at::RecordFunction as lft::scaled_dot_product_attention.
at::Tensor tiled_attention(const at::Tensor& q_bhte, const at::Tensor& k_bhse,
                           const at::Tensor& v_bhse, bool causal);

}  // namespace lft::ops
