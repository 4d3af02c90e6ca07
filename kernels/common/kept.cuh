// The result of dropout for an element, on the device.
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/common/philox.h"

namespace lft {

constexpr int kDraws = 8;  // elements per Philox block

/// Element i of the block's kDraws: x * scale if its 16 bits are at least `threshold`, else 0.
__device__ inline float kept(const PhiloxBlock& bits, int i, float x, uint32_t threshold,
                             float scale) {
  // Compares a draw in the upper half of a word; the lower bits cannot change the result.
  const uint32_t draw = i % 2 == 0 ? bits.word[i / 2] << 16 : bits.word[i / 2];
  const float scaled = __fmul_rn(x, scale);
  return draw >= threshold << 16 ? scaled : 0.f;
}

}  // namespace lft
