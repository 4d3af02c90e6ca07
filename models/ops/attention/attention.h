// softmax(q k^T / sqrt(e)) v, without storing the whole matrix of scores. Shape letters: b batch, h
// heads, t s positions, e head size.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace lft::ops {

/// Whether attention without a mask runs in float32 in this dtype, as widened products do (gemm.h):
/// not where it runs in tiles.
bool widens_attention(at::ScalarType dtype, const at::Device& device);

/// q [b, h, t, e], k and v [b, h, s, e] of one dtype -> that dtype, with the softmax in float32.
/// `mask` (broadcast to [b, h, t, s]; bool, or of the dtype of q and added to the scores) selects
/// the visible keys; undefined: all, or with `causal` those up to the position. FP16 on a CPU runs
/// in float32 and is rounded.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& mask, bool causal);

/// Consecutive sequences along a dimension, without padding.
struct PackedSequences {
  std::vector<int64_t> starts;  // [s + 1]: start of each sequence, and the total
  at::Tensor starts_s1;         // int32, the same on the device of the data, perhaps with further
                                // elements; undefined on a CPU
  at::Tensor positions_t =
      {};  // int64, positions() on the device of the data; undefined: made from `starts`
  int64_t at_least =
      0;  // lower bound of longest(), for a pass with changing sequences and fixed shapes
  std::vector<int64_t> shared = {};  // [s]: as many first positions of the sequence before this one
                                     // are also the first of this one, and computed only there.
                                     // That sequence has none itself. Empty: none
  at::Tensor whole_starts_s1 = {};   // like starts_s1, of with_shared(); undefined without `shared`

  int64_t shared_by(size_t sequence) const { return shared.empty() ? 0 : shared[sequence]; }
  int64_t length(size_t sequence) const;  // with the shared positions
  int64_t longest() const;
  at::Tensor positions() const;               // int64 [t], each within its sequence
  std::vector<int64_t> whole_starts() const;  // of with_shared(), like `starts`
};

/// x [t, ...] with the shared positions also before the sequences that share them, [whole_starts(),
/// ...], and the way back.
at::Tensor with_shared(const at::Tensor& x, const PackedSequences& sequences);
at::Tensor without_shared(const at::Tensor& x, const PackedSequences& sequences);

/// Attention within each sequence, with `causal` to the keys up to the position: q [t, h, e], k and
/// v [t, g, e] with h a multiple of g, of one dtype -> [t, h, e] of that dtype. Head i of q uses
/// head i * g / h of k and v. `masks`: none, or one per sequence as in attention(), undefined if
/// `causal` is enough.
at::Tensor packed_attention(const at::Tensor& q_the, const at::Tensor& k_tge,
                            const at::Tensor& v_tge, const PackedSequences& sequences,
                            bool causal = true, const std::vector<at::Tensor>& masks = {});

}  // namespace lft::ops
