// silu of a causal depthwise convolution over packed sequences.
#pragma once
#include "kernels/common/float_type.h"

namespace lft {

/// The most taps, whose inputs a thread keeps in registers.
constexpr int64_t kMostConvTaps = 8;

/// x and the results [tokens, channels] have `type`, without gaps; weight [taps, channels] is
/// float32. starts [sequences + 1], on the device, are the first tokens of the sequences, and
/// `tokens`. before [sequences, taps - 1, channels], of `type`: the inputs before each sequence.
struct CausalConvArgs {
  FloatType type = FloatType::kF32;
  int64_t tokens = 0, channels = 0, taps = 1, sequences = 0;
  const void* x = nullptr;
  const float* weight = nullptr;
  const int32_t* starts = nullptr;
  const void* before = nullptr;
};

/// z[i] = sum_j weight[j] x[i - (taps - 1) + j], rounded to `type`;  out = z / (1 + exp(-z)).
void causal_conv_ref(const CausalConvArgs& args, void* out);
void causal_conv(const CausalConvArgs& args, void* out, Stream stream);

/// The gradients of x, and of the weight unless dweight is null. `workspace`: floats for the
/// weight's gradient, causal_conv_workspace(); may be null without it.
int64_t causal_conv_workspace(const CausalConvArgs& args);
void causal_conv_backward_ref(const CausalConvArgs& args, const void* dout, void* dx,
                              float* dweight);
void causal_conv_backward(const CausalConvArgs& args, const void* dout, void* dx, float* dweight,
                          float* workspace, Stream stream);

// References compute in double, round z and round once more; kernels in float32, asynchronous,
// bit-reproducible, only in builds with CUDA. Launch failures are kInternal.
}  // namespace lft
