// The gated delta rule (Yang et al. 2024) over packed sequences. For each value head, with a state
// S [d, e] of zeros (or given) before a sequence, k and q divided by sqrt(their sum of squares +
// 1e-6), and q by sqrt(d) as well:
//   S' = exp(g) S,  error = v - k S',  S = S' + beta k^T error,  out = q S
#pragma once
#include "kernels/common/float_type.h"

namespace lft {

/// Tokens of a chunk, whose first state is kept for the backward pass.
constexpr int64_t kGatedDeltaChunk = 64;
/// The largest key size d: a column of S is in the registers of four threads.
constexpr int64_t kGatedDeltaMostKeys = 128;

/// q, k [tokens, key_heads, d] and v [tokens, heads, e] have `type`; the rows of a token have no
/// gaps, and tokens are at the given distances, in elements. g, beta [tokens, heads] and the states
/// [sequences, heads, d, e] are float32, without gaps. Value head i uses key head i * key_heads /
/// heads. starts [sequences + 1], on the device, are the first tokens of the sequences, and
/// `tokens`.
struct GatedDeltaArgs {
  FloatType type = FloatType::kF32;
  int64_t tokens = 0, sequences = 0, key_heads = 0, heads = 0, d = 0, e = 0;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  const float *g = nullptr, *beta = nullptr;
  const int32_t* starts = nullptr;
  const float* state = nullptr;  // before the sequences; null: zeros
};

/// out [tokens, heads, e] of args.type, and if it is not null `last`, the states after the
/// sequences.
void gated_delta_ref(const GatedDeltaArgs& args, void* out, float* last);
void gated_delta(const GatedDeltaArgs& args, void* out, float* last, Stream stream);

/// The gradients, all without gaps: dq, dk, dv of args.type and dg, dbeta of float32, from dout
/// [tokens, heads, e]. No gradient of the states.
struct GatedDeltaGradients {
  const void* dout = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float *dg = nullptr, *dbeta = nullptr;
};
/// The number of floats that the backward kernels need for their time: per token 2 heads (e + d e /
/// 64) + 2 key_heads d, and some.
int64_t gated_delta_workspace(const GatedDeltaArgs& args);
void gated_delta_backward_ref(const GatedDeltaArgs& args, const GatedDeltaGradients& of);
void gated_delta_backward(const GatedDeltaArgs& args, const GatedDeltaGradients& of,
                          float* workspace, Stream stream);

// References compute in double and round once; kernels in float32, asynchronous, bit-reproducible
// (each sum has one order, without atomics), only in builds with CUDA. A sequence has the bits of
// the same sequence alone. Launch failures are kInternal.
}  // namespace lft
