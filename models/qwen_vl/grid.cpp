#include "models/qwen_vl/grid.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/common/error.h"
#include "models/family/messages.h"
#include "models/ops/core/copy_to_device.h"

namespace lft::qwen_vl {

std::vector<Grid> grids_of(const std::vector<family::ImageShape>& images, const VisionConfig& v) {
  std::vector<Grid> grids;
  for (const family::ImageShape& image : images) {
    const bool fits = image.tiles == 1 && image.height > 0 && image.width > 0 &&
                      image.height % v.side() == 0 && image.width % v.side() == 0;
    if (!fits) {
      throw Error(ErrorKind::kInput,
                  {.what = "an image is not of a size that the model takes",
                   .where = {},
                   .found = std::to_string(image.tiles) + " tiles of " +
                            std::to_string(image.width) + "x" + std::to_string(image.height),
                   .expected = "one tile, whose sides are multiples of " + std::to_string(v.side()),
                   .next = family::kOfThisModel});
    }
    grids.push_back({image.height / v.patch, image.width / v.patch});
  }
  return grids;
}

at::Tensor patches_of(const at::Tensor& pixels, const std::vector<Grid>& grids,
                      const VisionConfig& v) {
  const at::Tensor flat = pixels.flatten();
  const int64_t of_patch = 3 * v.patch * v.patch;
  const at::Tensor patches = at::empty({flat.size(0) / of_patch, of_patch}, flat.options());
  int64_t from = 0;
  for (const Grid& grid : grids) {
    const int64_t values = grid.patches() * of_patch;
    const at::Tensor image = flat.narrow(0, from, values)
                                 .view({3, grid.height / v.merge, v.merge, v.patch,
                                        grid.width / v.merge, v.merge, v.patch});
    const at::Tensor in_order = image.permute({1, 4, 2, 5, 0, 3, 6});
    patches.narrow(0, from / of_patch, grid.patches()).view(in_order.sizes()).copy_(in_order);
    from += values;
  }
  return patches;
}

at::Tensor patch_places(const std::vector<Grid>& grids, int64_t merge) {
  std::vector<at::Tensor> places;
  for (const Grid& grid : grids) {
    const auto in_order = [&](const at::Tensor& of_axis) {
      return of_axis.expand({grid.height, grid.width})
          .reshape({grid.height / merge, merge, grid.width / merge, merge})
          .transpose(1, 2)
          .flatten();
    };
    places.push_back(at::stack({in_order(at::arange(grid.height, at::kLong).unsqueeze(1)),
                                in_order(at::arange(grid.width, at::kLong).unsqueeze(0))}));
  }
  return at::cat(places, 1);
}

at::Tensor patch_angles(const at::Tensor& places_2s, const VisionConfig& v) {
  const int64_t of_axis = v.head_dim() / 2;
  const at::Tensor exponent = at::arange(0, of_axis, 2, at::kFloat) / static_cast<double>(of_axis);
  const at::Tensor inverse = 1.0 / at::pow(at::Scalar(v.rope_theta), exponent);
  const at::Tensor angles = places_2s.to(at::kFloat).unsqueeze(2) * inverse;  // [2, s, e / 4]
  return at::cat({angles[0], angles[1]}, 1);
}

Corners corners_of(const at::Tensor& places_2s, const std::vector<Grid>& grids, int64_t positions) {
  int64_t side = 1;
  while ((side + 1) * (side + 1) <= positions) ++side;
  std::vector<int64_t> patches, heights, widths;
  for (const Grid& grid : grids) {
    patches.push_back(grid.patches());
    heights.push_back(grid.height);
    widths.push_back(grid.width);
  }
  const at::Tensor sizes_2n =
      at::stack({at::tensor(heights, at::kLong), at::tensor(widths, at::kLong)});
  const at::Tensor sizes_2s = sizes_2n.repeat_interleave(at::tensor(patches, at::kLong), 1);
  // The first patch is at the first position of the learned grid, the last at the last.
  const at::Tensor at_2s = places_2s.to(at::kFloat) * static_cast<double>(side - 1) /
                           (sizes_2s - 1).clamp_min(1).to(at::kFloat);
  const at::Tensor below = at_2s.floor(), share = at_2s - below;
  const at::Tensor low = below.to(at::kLong), high = (low + 1).clamp_max(side - 1);
  const at::Tensor places_22s = at::stack({low, high}, 1),
                   weights_22s = at::stack({1 - share, share}, 1);  // [axis, corner, s]
  const at::Tensor rows = places_22s[0].unsqueeze(1) * side, columns = places_22s[1].unsqueeze(0);
  return {
      (rows + columns).flatten(0, 1).t().contiguous(),
      (weights_22s[0].unsqueeze(1) * weights_22s[1].unsqueeze(0)).flatten(0, 1).t().contiguous()};
}

Windows windows_of(const std::vector<Grid>& grids, const VisionConfig& v) {
  const int64_t side = v.window / v.merge / v.patch, unit = v.merge * v.merge;
  std::vector<int64_t> order, starts = {0};
  int64_t first = 0;
  for (const Grid& grid : grids) {
    const int64_t rows = grid.height / v.merge, columns = grid.width / v.merge;
    for (int64_t top = 0; top < rows; top += side) {
      for (int64_t left = 0; left < columns; left += side) {
        for (int64_t r = top; r < std::min(top + side, rows); ++r) {
          for (int64_t c = left; c < std::min(left + side, columns); ++c)
            order.push_back(first + r * columns + c);
        }
        starts.push_back(static_cast<int64_t>(order.size()) * unit);
      }
    }
    first += rows * columns;
  }
  return {at::tensor(order, at::kLong), std::move(starts)};
}

std::vector<int64_t> image_starts(const std::vector<Grid>& grids) {
  std::vector<int64_t> starts = {0};
  for (const Grid& grid : grids) starts.push_back(starts.back() + grid.patches());
  return starts;
}

std::shared_ptr<const ops::PackedSequences> sequences_at(std::vector<int64_t> starts,
                                                         at::Device device) {
  auto sequences = std::make_shared<ops::PackedSequences>();
  if (!device.is_cpu())
    sequences->starts_s1 = ops::copy_to_device(at::tensor(starts, at::kInt), device);
  sequences->starts = std::move(starts);
  return sequences;
}

}  // namespace lft::qwen_vl
