// The gated delta rule (Yang et al. 2024), the recurrence of Gated DeltaNet. A value head has a
// state S [d, e], and each token changes it, then reads it, with k and q of length 1 (L2 norm,
// epsilon 1e-6):
//   S' = exp(g) S,  S = S' + beta k^T (v - k S'),  out = q S / sqrt(d)
// Tokens are computed in chunks of 64, as transformers' torch_chunk_gated_delta_rule() does, in
// float32, or in float64 for float64. Letters: t tokens of all sequences, h key heads, n value
// heads, d key size, e value size, s sequences.
#pragma once
#include <ATen/core/Tensor.h>

#include "models/ops/attention/attention.h"

namespace lft::ops {

/// Value head i uses key head i * h / n; n is a multiple of h. q, k and v have one dtype, and may
/// be columns of a larger matrix; beta has any dtype.
struct DeltaInput {
  at::Tensor q_thd, k_thd, v_tne;
  at::Tensor g_tn;  // float32, the logarithm of the decay, at most 0
  at::Tensor beta_tn;
};

struct DeltaResult {
  at::Tensor out_tne;     // the dtype of v
  at::Tensor state_snde;  // float32, after the last token of each sequence, if it was asked for
};

/// Every sequence starts from its own state of `state_snde`, or from zeros if it is undefined, and
/// is computed as if it were alone. A token costs about the same alone as in a long sequence, so
/// this is also the step of a decoder. No gradient passes through the states.
///
/// Saved for the backward pass: the inputs, (2 h d + n e) * the size of q and n * (the sizes of g
/// and beta) bytes a token, and the states that were given. The states within a sequence are
/// computed again. For its time the backward pass needs on a GPU gated_delta_workspace() floats, 8
/// n (e + d e / 64) + 8 h d bytes a token; on a CPU each thread needs 4 n / h * d e / 64 bytes for
/// a token of its sequence (d and e rounded up to 16), and less than 2 MB more.
DeltaResult gated_delta_rule(const DeltaInput& in, const PackedSequences& sequences,
                             const at::Tensor& state_snde = {}, bool final_state = false);

}  // namespace lft::ops
