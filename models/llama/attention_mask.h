// Attention masks other than the causal one. Shape letters: n sequences, t positions.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::llama {

/// Positions in the same block (a number of 0 or more) see each other; undefined: there are no
/// blocks. `window`: a position sees only the last `window` positions, including itself; 0: all.
struct SeenPositions {
  at::Tensor blocks_nt;  // int64, on the CPU; -1: in no block
  int64_t window = 0;
};

/// The row stride of a mask for this many positions. With another stride, attention on a GPU makes
/// and keeps a copy in each layer.
constexpr int64_t mask_row(int64_t positions) { return (positions + 15) / 16 * 16; }

/// A mask of `type` on `device`, [n, 1, t, t], to be added to the scores: 0 if a position (third
/// dimension) sees another (fourth), else minus infinity. Undefined if the mask is causal.
at::Tensor attention_mask(const SeenPositions& seen, int64_t positions, at::ScalarType type,
                          at::Device device);

}  // namespace lft::llama
