// Where the patches of a batch's images lie: their order, positions and windows. Patches are in the
// order of what is merged into one position: merge x merge patches after each other, these row by
// row. Plain sizes and indices, no weights. Shape letters: s patches, g groups (s / merge^2), e
// head size.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "models/family/image_processor.h"
#include "models/ops/attention/attention.h"
#include "models/qwen_vl/config.h"

namespace lft::qwen_vl {

/// Of one image, in patches.
struct Grid {
  int64_t height = 0, width = 0;
  int64_t patches() const { return height * width; }
};

/// kInput for an image that is not of whole positions.
std::vector<Grid> grids_of(const std::vector<family::ImageShape>& images, const VisionConfig& v);

/// Pixels of all images, each [c, height, width] after the other, as patches: [s, c * patch^2].
at::Tensor patches_of(const at::Tensor& pixels, const std::vector<Grid>& grids,
                      const VisionConfig& v);

/// Row and column of each patch in its image: int64 [2, s], on the CPU.
at::Tensor patch_places(const std::vector<Grid>& grids, int64_t merge);

/// Angles of the two axes: the first half of a head's pairs turns with the row, the second with the
/// column. float32 [s, e / 2], on the CPU.
at::Tensor patch_angles(const at::Tensor& places_2s, const VisionConfig& v);

/// The patches' positions in the learned grid, bilinear between its corners: int64 and float32
/// [s, 4], on the CPU.
struct Corners {
  at::Tensor places, weights;
};
Corners corners_of(const at::Tensor& places_2s, const std::vector<Grid>& grids, int64_t positions);

/// Groups in the order of windows: int64 [g], on the CPU; and where the windows begin, in patches.
struct Windows {
  at::Tensor order_g;
  std::vector<int64_t> starts;
};
Windows windows_of(const std::vector<Grid>& grids, const VisionConfig& v);

/// One sequence an image.
std::vector<int64_t> image_starts(const std::vector<Grid>& grids);

std::shared_ptr<const ops::PackedSequences> sequences_at(std::vector<int64_t> starts,
                                                         at::Device device);

}  // namespace lft::qwen_vl
