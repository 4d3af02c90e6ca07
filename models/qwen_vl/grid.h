// The grid of the patches of a batch: their order, positions and windows. The merge x merge patches
// of one position are consecutive, row by row. Plain sizes and indices, no weights. Shape letters:
// s patches, g groups (s / merge^2), e head size.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "models/family/image_processor.h"
#include "models/ops/attention/attention.h"
#include "models/qwen_vl/config.h"

namespace lft::qwen_vl {

/// The size of one image in patches.
struct Grid {
  int64_t height = 0, width = 0;
  int64_t patches() const { return height * width; }
};

/// Throws kInput for an image whose sides are not multiples of a position.
std::vector<Grid> grids_of(const std::vector<family::ImageShape>& images, const VisionConfig& v);

/// Splits the pixels of all images, each [c, height, width] after the other, into patches: [s, c *
/// patch^2].
at::Tensor patches_of(const at::Tensor& pixels, const std::vector<Grid>& grids,
                      const VisionConfig& v);

/// The row and column of each patch in its image: int64 [2, s], on the CPU.
at::Tensor patch_places(const std::vector<Grid>& grids, int64_t merge);

/// Rotary angles: the first half of the pairs of a head rotates with the row, the second with the
/// column. float32 [s, e / 2], on the CPU.
at::Tensor patch_angles(const at::Tensor& places_2s, const VisionConfig& v);

/// The four learned positions around each patch and their bilinear weights: int64 and float32 [s,
/// 4], on the CPU.
struct Corners {
  at::Tensor places, weights;
};
Corners corners_of(const at::Tensor& places_2s, const std::vector<Grid>& grids, int64_t positions);

/// The groups in the order of their windows: int64 [g], on the CPU; and the first patch of each
/// window.
struct Windows {
  at::Tensor order_g;
  std::vector<int64_t> starts;
};
Windows windows_of(const std::vector<Grid>& grids, const VisionConfig& v);

/// One sequence per image.
std::vector<int64_t> image_starts(const std::vector<Grid>& grids);

std::shared_ptr<const ops::PackedSequences> sequences_at(std::vector<int64_t> starts,
                                                         at::Device device);

}  // namespace lft::qwen_vl
