// What the module of cuDNN's attention and the program that opens it know of each other.
// Letters: s sequences, t tokens of all, h heads of q, g heads of k and v, e size of a head.
#pragma once
#include <compare>
#include <cstdint>

#include "kernels/common/float_type.h"

namespace lft {

inline constexpr const char* kCudnnModule = "liblft_cudnn.so";
inline constexpr const char* kCudnnEntry = "lft_open_cudnn_attention";

/// What a plan is made for. Sequences, longest and tokens are bounds: there may be fewer.
struct AttentionShape {
  int64_t sequences = 0, longest = 0, tokens = 0;
  int64_t heads = 0, groups = 0, size = 0;
  FloatType type = FloatType::kBF16;
  bool causal = true;
  auto operator<=>(const AttentionShape&) const = default;
};

/// Of one call, on the device. q, o and their gradients [t, h, e], k, v and theirs [t, g, e],
/// contiguous; stats float32 [s, h, longest, 1]; offsets int32 [s + 1], in elements; lengths int32
/// [s]. The bounds of the shape count for stats, offsets and lengths.
struct AttentionCall {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *lengths = nullptr;
  const void *q_offsets = nullptr, *kv_offsets = nullptr;
  void *o = nullptr, *stats = nullptr;  // the forward pass writes them, the backward pass reads
  const void* grad_o = nullptr;         // of the backward pass, as those that follow
  void *grad_q = nullptr, *grad_k = nullptr, *grad_v = nullptr;
  void* workspace = nullptr;
};

/// Attention within each sequence, scores scaled by 1 / sqrt(e). Any thread may call it.
class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;
  /// Bytes of workspace on the current device; -1: cuDNN has no plan, or no faster one than
  /// FlashAttention-2 (before compute capability 9.0). The first call for a shape takes 0.1 s.
  virtual int64_t workspace(const AttentionShape& shape, bool backward) = 0;
  /// After workspace() of the same shape, asynchronous; null, or why it failed.
  virtual const char* run(const AttentionShape& shape, bool backward, const AttentionCall& call,
                          Stream stream) = 0;
};
using CudnnEntry = CudnnAttention* (*)();

}  // namespace lft
