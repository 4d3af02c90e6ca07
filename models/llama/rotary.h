// Rotary angles of the positions of a pass (Su et al. 2021, arXiv 2104.09864), in Qwen-VL of three
// axes. Shape letters: b rows, t positions, e head_dim.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/llama/config.h"
#include "models/llama/decoder_input.h"
#include "models/llama/kv_cache.h"

namespace lft::llama {

/// Rotary angles of the positions: float32 [1 or b, t, e / 2], or less of a head whose other
/// numbers are not rotated.
struct Rotation {
  at::Tensor cos, sin;
};

/// x [b, t, h, e] with its first numbers rotated, as many as there are angles.
at::Tensor rotated(const at::Tensor& x_bthe, const Rotation& by);

/// The angles of a decoder, kept for the positions that passes had. `local`: those of the layers
/// with a window.
class RotaryAngles {
 public:
  explicit RotaryAngles(const LlamaConfig& config) : config_(config) {}
  /// Computes the angles of positions below `count` in advance, so that no later pass up to this
  /// length computes them.
  void reserve(int64_t count, at::Device device);
  /// The angles of a pass. `held`: the cache of the previous positions; null: none.
  Rotation of(const DecoderInput& input, const KvCache* held, bool local);

 private:
  /// The angles of three-component positions, from a table of the angles of each position.
  Rotation at_positions(const Rotation& table, const at::Tensor& positions_3bt) const;
  /// The angles of sequences whose angles depend on their length, computed for each sequence
  /// separately, so that batching and packing do not change them.
  Rotation by_length(const DecoderInput& input, const KvCache* held, bool local) const;
  /// The angles of positions 0 ... count - 1 of a sequence whose positions are below `length`.
  Rotation table(int64_t count, int64_t length, bool local, at::Device device) const;
  Rotation table_, local_table_;  // for positions 0..., grown on demand
  LlamaConfig config_;
};

}  // namespace lft::llama
