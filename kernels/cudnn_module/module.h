// The interface between the cuDNN attention module and the program that opens it. Letters: s
// sequences, t tokens in total, h heads of q, g heads of k and v, e head size.
#pragma once
#include <compare>
#include <cstdint>

#include "kernels/common/float_type.h"

namespace lft {

inline constexpr const char* kCudnnModule = "liblft_cudnn.so";
inline constexpr const char* kCudnnEntry = "lft_open_cudnn_attention";

/// The key of a plan. Sequences, longest and tokens are upper bounds.
struct AttentionShape {
  int64_t sequences = 0, longest = 0, tokens = 0;
  int64_t heads = 0, groups = 0, size = 0;
  FloatType type = FloatType::kBF16;
  bool causal = true;
  auto operator<=>(const AttentionShape&) const = default;
};

/// Arguments of one call, on the device. q, o and their gradients [t, h, e], k, v and their
/// gradients [t, g, e], contiguous; stats float32 [s, h, longest, 1]; offsets int32 [s + 1], in
/// elements; lengths int32 [s]. stats, offsets and lengths have the sizes of the shape's bounds.
struct AttentionCall {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *lengths = nullptr;
  const void *q_offsets = nullptr, *kv_offsets = nullptr;
  void *o = nullptr, *stats = nullptr;  // written by the forward pass, read by the backward pass
  const void* grad_o = nullptr;         // for the backward pass, like those below
  void *grad_q = nullptr, *grad_k = nullptr, *grad_v = nullptr;
  void* workspace = nullptr;
};

/// Attention within each sequence, scores scaled by 1 / sqrt(e). Thread-safe.
class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;
  /// Bytes of workspace on the current device; -1: cuDNN has no plan, or no faster one than
  /// FlashAttention-2 (before compute capability 9.0). The first call for a shape takes 0.1 s.
  virtual int64_t workspace(const AttentionShape& shape, bool backward) = 0;
  /// Must follow workspace() of the same shape; asynchronous. Returns null, or the error.
  virtual const char* run(const AttentionShape& shape, bool backward, const AttentionCall& call,
                          Stream stream) = 0;
};
using CudnnEntry = CudnnAttention* (*)();

}  // namespace lft
