#include "models/smolvlm/smolvlm_images.h"

#include <ATen/ceil_div.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/image/image_lanczos.h"

namespace lft::smolvlm {
namespace {

using image::Size;
using Json = nlohmann::json;

constexpr int64_t kMostSide = 4096;  // maximum side of an image before it is split into tiles
const std::vector<float> kHalf = {0.5f, 0.5f, 0.5f};

/// Python's int(a / b) and int(a * b), in double.
int64_t over(int64_t a, double b) { return static_cast<int64_t>(static_cast<double>(a) / b); }
int64_t times(int64_t a, double b) { return static_cast<int64_t>(static_cast<double>(a) * b); }

double aspect_of(const Size& size) {
  return static_cast<double>(size.width) / static_cast<double>(size.height);
}

/// The longer side becomes `longest`, the shorter one an even number.
Size scaled_to(const Size& size, int64_t longest) {
  const double aspect = aspect_of(size);
  Size to = size;
  if (size.width >= size.height) {
    to.width = longest;
    to.height = over(longest, aspect);
    to.height += to.height % 2;
  } else {
    to.height = longest;
    to.width = times(longest, aspect);
    to.width += to.width % 2;
  }
  return {std::max<int64_t>(1, to.width), std::max<int64_t>(1, to.height)};
}

Size at_most(const Size& size, int64_t most) {
  const double aspect = aspect_of(size);
  Size to = size;
  if (size.width >= size.height && size.width > most) {
    to = {most, over(most, aspect)};
  } else if (size.height > size.width && size.height > most) {
    to = {times(most, aspect), most};
  }
  return {std::max<int64_t>(1, to.width), std::max<int64_t>(1, to.height)};
}

/// Rounds both sides to whole tiles.
Size in_tiles(const Size& size, int64_t tile) {
  const double aspect = aspect_of(size);
  Size to;
  if (size.width >= size.height) {
    to.width = at::ceil_div(size.width, tile) * tile;
    to.height = at::ceil_div(over(to.width, aspect), tile) * tile;
  } else {
    to.height = at::ceil_div(size.height, tile) * tile;
    to.width = at::ceil_div(times(to.height, aspect), tile) * tile;
  }
  return to;
}

class TileProcessor : public family::ImageProcessor {
 public:
  TileProcessor(const SmolVlmFields& fields, int64_t longest, bool splits)
      : tile_(fields.vision.image_size),
        positions_(fields.tile_positions()),
        patches_(fields.vision.grid() * fields.vision.grid()),
        longest_(longest),
        splits_(splits) {}

  family::ImagePlan plan(const Size& size) const override {
    const Size last = sizes_of(size).back();
    family::ImagePlan plan{
        .shape = {.height = tile_, .width = tile_, .source = size}, .text = {}, .runs = {}};
    const bool cut = last.width > tile_ || last.height > tile_;
    if (cut) {
      plan.shape.rows = last.height / tile_;
      plan.shape.columns = last.width / tile_;
      plan.shape.tiles = plan.shape.rows * plan.shape.columns + 1;
    }
    const std::string fake = "<fake_token_around_image>";
    for (int64_t row = 1; row <= plan.shape.rows; ++row) {
      for (int64_t column = 1; column <= plan.shape.columns; ++column) {
        plan.text +=
            fake + "<row_" + std::to_string(row) + "_col_" + std::to_string(column) + ">" + token();
      }
      plan.text += "\n";
    }
    plan.text += (cut ? "\n" : "") + fake + "<global-img>" + token() + fake;
    plan.runs.assign(static_cast<size_t>(plan.shape.tiles), positions_);
    plan.tower_positions = plan.shape.tiles * patches_;
    return plan;
  }

  family::TileImage make(const image::View& image) const override {
    const family::ImagePlan planned = plan({image.width, image.height});
    family::TileImage made{.shape = planned.shape, .values = {}};
    made.values.reserve(static_cast<size_t>(made.shape.values()));
    std::vector<uint8_t> bytes;
    image::View now = image;
    for (const Size& to : sizes_of({image.width, image.height})) {
      std::vector<uint8_t> next = image::resize_lanczos(now, to);
      bytes = std::move(next);
      now = {.rgb_hwc = bytes.data(), .width = to.width, .height = to.height};
    }
    for (int64_t row = 0; row < made.shape.rows; ++row) {
      for (int64_t column = 0; column < made.shape.columns; ++column)
        add_tile(now, row * tile_, column * tile_, made);
    }
    const std::vector<uint8_t> whole = image::resize_lanczos(now, {tile_, tile_});
    add_tile({.rgb_hwc = whole.data(), .width = tile_, .height = tile_}, 0, 0, made);
    return made;
  }

  int64_t working_bytes(const Size& size) const override {
    int64_t most = 0;
    Size from = size;
    for (const Size& to : sizes_of(size)) {
      most = std::max(
          most, 3 * (from.width * from.height + to.width * from.height + to.width * to.height));
      from = to;
    }
    return most + plan(size).shape.values();
  }

  std::string token() const override { return "<image>"; }

  Json identity() const override {
    return {{"image_fit", "native"},
            {"image_mean", mean},
            {"image_std", std},
            {"tile", tile_},
            {"longest_edge", longest_},
            {"splits", splits_},
            {"tile_positions", positions_}};
  }

 private:
  /// The sizes that an image is resized to, in order.
  std::vector<Size> sizes_of(const Size& size) const {
    const Size first = at_most(scaled_to(size, longest_), kMostSide);
    return {first, splits_ ? in_tiles(first, tile_) : Size{tile_, tile_}};
  }

  void add_tile(const image::View& from, int64_t top, int64_t left, family::TileImage& to) const {
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t y = 0; y < tile_; ++y) {
        const uint8_t* line = from.rgb_hwc + 3 * ((top + y) * from.width + left) + c;
        for (int64_t x = 0; x < tile_; ++x) to.values.push_back(line[3 * x]);
      }
    }
  }

  int64_t tile_, positions_, patches_, longest_;
  bool splits_;
};

int64_t longest_of(const family::ProcessorFile& file, const char* key, int64_t fallback) {
  const Json value = file.json.value(key, Json());
  if (value.is_null()) return fallback;
  const Json side = value.is_object() ? value.value("longest_edge", Json()) : Json();
  if (!side.is_number_integer() || side.get<double>() < 1 || side.get<double>() > 16384) {
    file.fail(std::string(key) + " has no longest_edge", value.dump().substr(0, 80),
              "{\"longest_edge\": N} of 1 to 16384", family::kItsOwnFile);
  }
  return side.get<int64_t>();
}

}  // namespace

int64_t longest_edge(int64_t max_pixels) {
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(max_pixels)));
  return std::clamp<int64_t>(side, 1, kMostSide);
}

Json with_longest_edge(const Json& file, const family::ImageRules& rules) {
  Json fitted = file;
  if (rules.max_pixels > 0)
    fitted["size"] = {{"longest_edge", static_cast<uint64_t>(longest_edge(rules.max_pixels))}};
  return fitted;
}

std::shared_ptr<const family::ImageProcessor> tile_processor(const SmolVlmFields& fields,
                                                             const family::ProcessorFile& file,
                                                             const family::ImageRules& rules) {
  family::expect_native(rules);
  family::expect_no_least_pixels(rules);
  const int64_t tile = fields.vision.image_size;
  if (const int64_t stated = longest_of(file, "max_image_size", tile); stated != tile) {
    file.fail("the processor's max_image_size is not the model's image_size",
              "longest_edge " + std::to_string(stated),
              "vision_config.image_size " + std::to_string(tile),
              "the two files do not belong together; take the processor file of this model");
  }
  const int64_t longest =
      rules.max_pixels > 0 ? longest_edge(rules.max_pixels) : longest_of(file, "size", 4 * tile);
  const auto processor =
      std::make_shared<TileProcessor>(fields, longest, file.flag("do_image_splitting", true));
  processor->mean = file.colour("image_mean", kHalf, false);
  processor->std = file.colour("image_std", kHalf, true);
  file.expect_true({"do_resize", "do_rescale", "do_normalize"});
  file.expect_resample(1, "Lanczos");
  file.expect_rescale();
  return processor;
}

}  // namespace lft::smolvlm
