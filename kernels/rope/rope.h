// Rotary position embedding (Su et al. 2021), with half-split pairs as in Llama.
#pragma once
#include "kernels/common/float_type.h"

namespace lft {

/// x and y: [rows, heads, 2 * half] of one type, without gaps; they may be the same array. Row r is
/// rotated by the angles of row r / positions * angle_stride + r % positions of cos and sin,
/// float32 [.., half]; angle_stride is `positions`, or 0 if every batch row has the same angles.
/// sign -1 inverts a rotation of sign 1.
struct RopeArgs {
  FloatType type = FloatType::kF32;
  int64_t rows = 0, heads = 0, half = 0, positions = 1, angle_stride = 0;
  const float *cos = nullptr, *sin = nullptr;
  float sign = 1;
};

/// y[i] = x[i] cos - x[half + i] s,  y[half + i] = x[half + i] cos + x[i] s,  s = sign * sin; in
/// float32, each product rounded.
void rope_ref(const RopeArgs& args, const void* x, void* y);
/// The same bits on the GPU, asynchronous. Only in builds with CUDA. Throws kInternal if the launch
/// fails.
void rope(const RopeArgs& args, const void* x, void* y, Stream stream);

}  // namespace lft
