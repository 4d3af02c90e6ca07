#include "models/llava/anyres_images.h"

#include <ATen/ops/zeros.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/image/image_resize.h"
#include "models/llava/anyres.h"
#include "models/llava/llava_images.h"

namespace lft::llava {
namespace {

using image::Size;
using Json = nlohmann::json;

Json listed(const std::vector<Size>& canvases) {
  Json all = Json::array();
  for (const Size& canvas : canvases) all.push_back({canvas.height, canvas.width});
  return all;
}

class AnyresProcessor : public family::ImageProcessor {
 public:
  AnyresProcessor(const LlavaFields& fields, std::shared_ptr<const family::ImageProcessor> several)
      : fields_(fields), several_(std::move(several)) {}

  const ImageProcessor& of_row(size_t images) const override {
    return several_ && images > 1 ? *several_ : *this;
  }

  family::ImagePlan plan(const Size& size) const override {
    const int64_t tile = fields_.vision.image_size;
    const Size canvas = best_canvas(size, fields_.canvases);
    family::ImagePlan plan{.shape = {.height = tile,
                                     .width = tile,
                                     .rows = canvas.height / tile,
                                     .columns = canvas.width / tile,
                                     .source = size},
                           .text = token(),
                           .runs = {}};
    plan.shape.tiles = 1 + plan.shape.rows * plan.shape.columns;
    plan.runs = {fields_.image_positions(plan.shape)};
    plan.tower_positions = plan.shape.tiles * fields_.tower_positions();
    return plan;
  }

  family::TileImage make(const image::View& image) const override {
    const Size size{image.width, image.height};
    family::TileImage made{.shape = plan(size).shape, .values = {}};
    made.values.reserve(static_cast<size_t>(made.shape.values()));
    const int64_t tile = fields_.vision.image_size;
    const at::Tensor pixels = image::as_tensor(image);
    add_tile(image::resize_bicubic(pixels, {tile, tile}), made);
    const Size canvas{made.shape.columns * tile, made.shape.rows * tile};
    const Size fitted = fitted_size(size, canvas);
    const at::Tensor whole = at::zeros({1, 3, canvas.height, canvas.width}, at::kByte);
    whole.narrow(2, (canvas.height - fitted.height) / 2, fitted.height)
        .narrow(3, (canvas.width - fitted.width) / 2, fitted.width)
        .copy_(image::resize_bicubic(pixels, fitted));
    for (int64_t row = 0; row < made.shape.rows; ++row) {
      for (int64_t column = 0; column < made.shape.columns; ++column)
        add_tile(whole.narrow(2, row * tile, tile).narrow(3, column * tile, tile), made);
    }
    return made;
  }

  int64_t working_bytes(const Size& size) const override {
    const family::ImageShape shape = plan(size).shape;
    const int64_t tile = fields_.vision.image_size;
    const Size canvas{shape.columns * tile, shape.rows * tile};
    // Rows are resized in one direction, then in the other; canvas and tiles are allocated, too.
    return 3 * (size.height * canvas.width + 2 * canvas.width * canvas.height) + shape.values();
  }

  std::string token() const override { return "<image>"; }

  Json identity() const override {
    return {{"image_fit", "native"},
            {"image_mean", mean},
            {"image_std", std},
            {"image_grid_pinpoints", listed(fields_.canvases)},
            {"most_tiles", fields_.most_tiles},
            {"tile", fields_.vision.image_size},
            {"tile_positions", fields_.tile_positions()}};
  }

 private:
  static void add_tile(const at::Tensor& tile_nchw, family::TileImage& to) {
    const at::Tensor contiguous = tile_nchw.contiguous(at::MemoryFormat::Contiguous);
    const uint8_t* bytes = contiguous.const_data_ptr<uint8_t>();
    to.values.insert(to.values.end(), bytes, bytes + contiguous.numel());
  }

  LlavaFields fields_;
  std::shared_ptr<const family::ImageProcessor> several_;
};

void check_rules(const family::ImageRules& rules) {
  family::expect_native(rules);
  if (rules.min_pixels > 0 || rules.max_pixels > 0)
    throw Error(ErrorKind::kUsage,
                {.what = "this family does not support bounds of pixels",
                 .where = "data.min_pixels, max_pixels",
                 .found = std::to_string(rules.max_pixels),
                 .expected = "the canvases that config.json says",
                 .next = "set image_grid_pinpoints in a copy of the model's files"});
}

}  // namespace

std::shared_ptr<const family::ImageProcessor> anyres_processor(const LlavaFields& fields,
                                                               const family::ProcessorFile& file,
                                                               const family::ImageRules& rules) {
  check_rules(rules);
  const char* key = "image_grid_pinpoints";
  const Json own = listed(fields.canvases);
  if (const Json stated = file.json.value(key, Json()); !stated.is_null() && stated != own)
    file.fail("the processor's image_grid_pinpoints are not the model's",
              stated.dump().substr(0, 80), own.dump().substr(0, 80) + " (config.json)",
              "the two files do not belong together; take the processor file of this model");
  for (const char* square : {"size", "crop_size"})
    check_square(file, square, fields.vision.image_size);
  file.expect_true({"do_resize", "do_rescale", "do_normalize"});
  file.expect_resample(3, "bicubic");
  file.expect_rescale();
  const bool pads_several = fields.kind == Kind::kOneVision;
  const auto processor = std::make_shared<AnyresProcessor>(
      fields, pads_several ? square_tiles(fields, file) : nullptr);
  set_colours(file, *processor);
  return processor;
}

}  // namespace lft::llava
