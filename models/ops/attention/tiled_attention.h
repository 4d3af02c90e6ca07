// Attention on a CPU in tiles with matrix products of oneDNN. LibTorch's BF16 attention is fast on
// processors with AMX; elsewhere it calls MKL, which is slow on processors of other vendors than
// Intel. Shape letters: b batch, h heads, t queries, s keys, e head size.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// Whether tiled_attention() supports these tensors and is faster than LibTorch: BFloat16 on a CPU
/// with avx512_bf16 and without AMX, an even head size, and as many keys as queries if `causal`.
bool fits_tiles(const at::Tensor& q_bhte, const at::Tensor& k_bhse, bool causal);

/// softmax(q k^T / sqrt(e)) v -> [b, h, t, e] with memory layout [b, t, h, e]. Scores, softmax and
/// sums are float32; the result does not depend on the number of threads. `causal`: query i sees
/// the keys up to i. at::RecordFunction records it as lft::scaled_dot_product_attention.
at::Tensor tiled_attention(const at::Tensor& q_bhte, const at::Tensor& k_bhse,
                           const at::Tensor& v_bhse, bool causal);

}  // namespace lft::ops
