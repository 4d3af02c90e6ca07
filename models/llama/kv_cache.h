// Keys and values of the positions seen so far, for generation. Shape letters: b rows, e head_dim.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lft::llama {

/// Rows of one batch may differ in length. Empty before the first call.
struct KvCache {
  std::vector<at::Tensor> keys, values;  // a layer: [b, kv heads, capacity, e]
  std::vector<int64_t> lengths;          // positions held, a row
  std::vector<int64_t> offsets;          // a row: the position of what comes next is above its
                                         // place by so much; empty: by nothing
  bool empty() const { return keys.empty(); }
};

/// Cached keys are attended to in whole steps, so many that `keys` are among them. A GPU's
/// attention is planned anew for every length it meets, which takes longer than a token.
int64_t whole_key_steps(int64_t keys);

/// Keys or values with at least so much capacity; what is new is zero.
at::Tensor with_capacity(const at::Tensor& held_bhse, int64_t capacity);
/// The rows of both, those of `more` last. Either may be empty; both are of one model.
KvCache join_rows(const KvCache& cache, const KvCache& more);
/// The rows that are named, in this order, and no capacity above the longest's.
KvCache keep_rows(const KvCache& cache, const std::vector<int64_t>& rows);

}  // namespace lft::llama
