// The cache for generation: keys and values of attention, and states of gated delta rules. Shape
// letters: b rows, e head_dim.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lft::llama {

/// Rows of one batch may differ in length. Empty before the first call.
struct KvCache {
  std::vector<at::Tensor> keys, values;  // per layer: [b, kv heads, capacity, e]; undefined if it
                                         // is recurrent
  // Per layer, undefined if it has attention: the state after each row's last position, and the
  // last inputs of its convolution (gated_delta_net.h).
  std::vector<at::Tensor> states, inputs;
  std::vector<int64_t> lengths;  // cached positions of each row
  std::vector<int64_t> offsets;  // per row: the next position minus its index in the row;
                                 // empty: 0
  bool empty() const { return keys.empty(); }
  int64_t longest() const { return *std::ranges::max_element(lengths); }
  /// The position of the next token of each row.
  std::vector<int64_t> next_positions() const;
};

/// Where the next position of each row is stored.
struct CachePlaces {
  at::Tensor rows_b, places_b;  // int64: the row, and the index in it
  int64_t seen = 0;             // positions up to the last that attention may see
};

/// The number of keys rounded up to whole steps, the length that attention uses. A GPU plans its
/// attention for every new length, which takes longer than a token.
int64_t whole_key_steps(int64_t keys);

/// Keys or values with at least this capacity; new positions are zero.
at::Tensor with_capacity(const at::Tensor& held_bhse, int64_t capacity);
/// Writes the first positions of all rows, [b, t, heads, e], to a layer's keys or values.
void store_first(const at::Tensor& fresh_bthe, at::Tensor* held_bhse);
/// Appends one position to each row of a layer's keys or values, [b, 1, heads, e], and returns them
/// up to the last visible position: [b, heads, places.seen, e].
at::Tensor store_next(const at::Tensor& fresh_bthe, const CachePlaces& places,
                      at::Tensor* held_bhse);
/// Sets the positions from each row's length on to zero, after a pass that stored more. A state
/// cannot be shortened.
void clear_after_lengths(KvCache& cache);
/// Concatenates the rows of two caches of one model, those of `more` last. Either may be empty.
KvCache join_rows(const KvCache& cache, const KvCache& more);
/// Selects rows, in this order, with the capacity of the longest. The layers of the old cache are
/// freed one after the other.
KvCache keep_rows(KvCache cache, const std::vector<int64_t>& rows);

}  // namespace lft::llama
