// Pixel shuffle (Shi et al. 2016), downwards: the features of neighbouring patches become one
// position. Shape letters: n tiles, s patches, d features.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::layers {

/// [n, s, d] of square tiles -> [n, s / scale^2, scale^2 d]. The patches of a position are in
/// row-major order. The side of a tile must be a multiple of `scale`.
at::Tensor pixel_shuffle(const at::Tensor& features_nsd, int64_t scale);

}  // namespace lft::layers
