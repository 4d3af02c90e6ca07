// What a position of a sequence sees, where that is not simply all positions up to itself. Shape
// letters: n sequences, t positions.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::llama {

/// Positions of one block (the same number, 0 or more) see each other; undefined: there are none.
/// `window`: nothing that lies so many positions back or more is seen; 0: no such limit.
struct SeenPositions {
  at::Tensor blocks_nt;  // int64, on the CPU; -1: in no block
  int64_t window = 0;
};

/// Numbers between the rows of a mask of so many positions: of other strides a GPU's attention
/// makes, and keeps, a copy in each layer.
constexpr int64_t mask_row(int64_t positions) { return (positions + 15) / 16 * 16; }

/// Float of `type` on `device`, [n, 1, t, t], to be added to the scores: 0 where a position (third)
/// sees another (fourth), else minus infinity. Undefined where all see what is not after them.
at::Tensor attention_mask(const SeenPositions& seen, int64_t positions, at::ScalarType type,
                          at::Device device);

}  // namespace lft::llama
