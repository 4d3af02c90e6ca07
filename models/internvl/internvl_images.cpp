#include "models/internvl/internvl_images.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "models/image/image_resize.h"

namespace lft::internvl {
namespace {

using image::Size;
using Json = nlohmann::json;

constexpr int64_t kMostTiles = 1024;
const std::vector<float> kImageNetMean = {0.485f, 0.456f, 0.406f},
                         kImageNetStd = {0.229f, 0.224f, 0.225f};

double ratio_of(const Size& size) {
  return static_cast<double>(size.width) / static_cast<double>(size.height);
}

class TileProcessor : public family::ImageProcessor {
 public:
  TileProcessor(const InternVlFields& fields, const TileBounds& bounds)
      : tile_(fields.vision.image_size),
        positions_(fields.tile_positions()),
        patches_(fields.vision.grid() * fields.vision.grid() + 1),
        thumbnail_(fields.thumbnail),
        bounds_(bounds) {}

  family::ImagePlan plan(const Size& size) const override {
    const Size grid = tile_grid(size, tile_, bounds_);
    family::ImageShape shape{.height = tile_, .width = tile_, .source = size};
    if (grid.width * grid.height > 1) {
      shape.rows = grid.height;
      shape.columns = grid.width;
      shape.tiles = shape.rows * shape.columns + (thumbnail_ ? 1 : 0);
    }
    return {.shape = shape,
            .text = "<img>" + token() + "</img>",
            .runs = {shape.tiles * positions_},
            .tower_positions = shape.tiles * patches_};
  }

  family::TileImage make(const image::View& image) const override {
    family::TileImage made{.shape = plan({image.width, image.height}).shape, .values = {}};
    made.values.resize(static_cast<size_t>(made.shape.values()));
    const at::Tensor pixels = image::as_tensor(image);
    uint8_t* to = made.values.data();
    const auto add = [&](int64_t rows, int64_t columns) {
      const at::Tensor tiles = image::resize_bicubic(pixels, {columns * tile_, rows * tile_})
                                   .reshape({3, rows, tile_, columns, tile_})
                                   .permute({1, 3, 0, 2, 4})
                                   .contiguous();
      std::memcpy(to, tiles.const_data_ptr<uint8_t>(), tiles.nbytes());
      to += tiles.nbytes();
    };
    if (made.shape.rows > 0) add(made.shape.rows, made.shape.columns);
    if (made.shape.rows == 0 || thumbnail_) add(1, 1);
    return made;
  }

  int64_t working_bytes(const Size& size) const override {
    const family::ImageShape shape = plan(size).shape;
    // Rows are resized in one direction, then in the other; then tiles are separated.
    const int64_t columns = std::max<int64_t>(shape.columns, 1);
    return 3 * size.height * columns * tile_ + 3 * shape.values();
  }

  std::string token() const override { return kImageMark; }

  Json identity() const override {
    return {{"image_fit", "native"},
            {"image_mean", mean},
            {"image_std", std},
            {"tile", tile_},
            {"min_patches", bounds_.least},
            {"max_patches", bounds_.most},
            {"tile_positions", positions_},
            {"thumbnail", thumbnail_}};
  }

 private:
  int64_t tile_, positions_, patches_;
  bool thumbnail_;
  TileBounds bounds_;
};

/// `size` is a number, or an object of two equal ones or of the shorter side.
void check_size(const family::ProcessorFile& file, int64_t tile) {
  const Json size = file.json.value("size", Json());
  if (size.is_null() || size == Json(tile) || size == Json{{"shortest_edge", tile}}) return;
  if (size.is_object() && size.value("height", Json()) == Json(tile) &&
      size.value("width", Json()) == Json(tile))
    return;
  file.fail("the processor's size is not the model's image_size", size.dump().substr(0, 80),
            "vision_config.image_size " + std::to_string(tile) + " in both directions",
            "the two files do not belong together; take the processor file of this model");
}

TileBounds bounds_of(const InternVlFields& fields, const family::ProcessorFile& file,
                     const family::ImageRules& rules) {
  TileBounds bounds = fields.tiles;
  bounds.least = file.integer("min_patches", 1, kMostTiles, bounds.least);
  bounds.most = file.integer("max_patches", 1, kMostTiles, bounds.most);
  if (rules.max_pixels > 0) bounds.most = tiles_of(fields, rules.max_pixels);
  bounds.least = std::min(bounds.least, bounds.most);
  return bounds;
}

}  // namespace

int64_t tiles_of(const InternVlFields& fields, int64_t max_pixels) {
  const int64_t tile = fields.vision.image_size;
  return std::clamp<int64_t>(max_pixels / (tile * tile), 1, kMostTiles);
}

Size tile_grid(const Size& size, int64_t tile, const TileBounds& bounds) {
  const double aspect = ratio_of(size);
  Size best = {1, 1};
  double nearest = std::numeric_limits<double>::infinity();
  for (int64_t tiles = bounds.least; tiles <= bounds.most; ++tiles) {
    for (int64_t columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns != 0) continue;
      const Size grid = {columns, tiles / columns};
      const double off = std::abs(aspect - ratio_of(grid));
      const auto area = static_cast<double>(size.width * size.height);
      const bool fills = area > 0.5 * static_cast<double>(tile * tile * tiles);
      if (off > nearest || (off == nearest && !fills)) continue;
      nearest = off;
      best = grid;
    }
  }
  return best;
}

Json with_most_tiles(const InternVlFields& fields, const Json& file,
                     const family::ImageRules& rules) {
  Json fitted = file;
  if (rules.max_pixels > 0) {
    const TileBounds bounds = bounds_of(fields, {.json = file, .where = "", .folder = ""}, rules);
    fitted["max_patches"] = bounds.most;
    if (fitted.contains("min_patches")) fitted["min_patches"] = bounds.least;
  }
  return fitted;
}

std::shared_ptr<const family::ImageProcessor> tile_processor(const InternVlFields& fields,
                                                             const family::ProcessorFile& file,
                                                             const family::ImageRules& rules) {
  family::expect_native(rules);
  family::expect_no_least_pixels(rules);
  check_size(file, fields.vision.image_size);
  const auto processor = std::make_shared<TileProcessor>(fields, bounds_of(fields, file, rules));
  processor->mean = file.colour("image_mean", kImageNetMean, false);
  processor->std = file.colour("image_std", kImageNetStd, true);
  file.expect_true({"do_resize", "do_rescale", "do_normalize"});
  file.expect_resample(3, "bicubic");
  file.expect_rescale();
  return processor;
}

}  // namespace lft::internvl
