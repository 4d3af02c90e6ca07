// Attention of one position per row to a key-value cache, as in decoding. Shape letters: b rows, g
// key heads, r queries of a key head, s cached positions, e head size.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// softmax(q k^T / sqrt(e)) v over the positions where `seen` (bool [b, 1, 1, s], at least one per
/// row) is true: q [b, g, r, e], keys and values [b, g, s, e] of one dtype -> [b, g, r, e] of that
/// dtype, contiguous. On a CPU without a graph and with at most 3 queries per key head, scores,
/// softmax and sums are float32, and a row of the result depends neither on the other rows nor on
/// the number of threads; this takes as long as reading the cache, while LibTorch's BF16 attention
/// to one query runs a slow product on some processors. Otherwise it is attention().
at::Tensor cache_attention(const at::Tensor& q_bgre, const at::Tensor& keys_bgse,
                           const at::Tensor& values_bgse, const at::Tensor& seen_b11s);

}  // namespace lft::ops
