#include "models/gemma/gemma_images.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/image/image.h"
#include "models/image/image_resize.h"

namespace lft::gemma {
namespace {

using image::Size;
using Json = nlohmann::json;

const std::vector<float> kHalf = {0.5f, 0.5f, 0.5f};

class StretchingProcessor : public family::ImageProcessor {
 public:
  explicit StretchingProcessor(const GemmaFields& fields)
      : side_(fields.vision.image_size),
        positions_(fields.image_positions()),
        patches_(fields.vision.grid() * fields.vision.grid()) {}

  family::ImagePlan plan(const Size&) const override {
    return {.shape = *fixed_shape(),
            .text = "\n\n<start_of_image>" + token() + "<end_of_image>\n\n",
            .runs = {positions_},
            .tower_positions = patches_};
  }

  family::TileImage make(const image::View& image) const override {
    family::TileImage made{.shape = *fixed_shape(), .values = {}};
    const at::Tensor resized =
        image::resize_bilinear(image::as_tensor(image), {side_, side_}).contiguous();
    made.values.resize(static_cast<size_t>(made.shape.values()));
    std::memcpy(made.values.data(), resized.const_data_ptr<uint8_t>(), made.values.size());
    return made;
  }

  int64_t working_bytes(const Size& size) const override {
    // Rows are resized in one direction, then in the other; then channels are separated.
    return 3 * size.height * side_ + 3 * 3 * side_ * side_;
  }

  std::string token() const override { return "<image_soft_token>"; }

  Json identity() const override {
    return {{"image_fit", "native"},
            {"image_mean", mean},
            {"image_std", std},
            {"image_positions", positions_},
            {"image_size", side_}};
  }

  std::optional<family::ImageShape> fixed_shape() const override {
    return family::ImageShape{.height = side_, .width = side_};
  }

 private:
  int64_t side_, positions_, patches_;
};

void check_rules(const family::ImageRules& rules) {
  family::expect_native(rules);
  if (rules.min_pixels > 0 || rules.max_pixels > 0) {
    throw Error(ErrorKind::kUsage,
                {.what = "this family does not support bounds of pixels",
                 .where = "data.min_pixels, max_pixels",
                 .found = std::to_string(std::max(rules.min_pixels, rules.max_pixels)),
                 .expected = "the square that the model's tower takes",
                 .next = "leave data.min_pixels and data.max_pixels out"});
  }
}

void check_file(const family::ProcessorFile& file, const GemmaFields& fields) {
  if (file.flag("do_pan_and_scan", false)) {
    file.fail("do_pan_and_scan is true", "true", "false: lft shows the model the whole image alone",
              "set do_pan_and_scan to false in a copy of the file, as the published ones have it");
  }
  const std::string side = std::to_string(fields.vision.image_size);
  const Json size = file.json.value("size", Json());
  for (const char* key : {"height", "width"}) {
    if (size.is_null()) break;
    const Json found = size.is_object() ? size.value(key, Json()) : Json();
    if (found != Json(fields.vision.image_size)) {
      file.fail("the processor's size is not the model's image_size", size.dump().substr(0, 80),
                "height and width " + side,
                "the two files do not belong together; take the processor file of this model");
    }
  }
  const int64_t positions = fields.image_positions();
  if (const int64_t stated = file.integer("image_seq_length", 1, 1 << 24, positions);
      stated != positions) {
    file.fail("image_seq_length is not the model's mm_tokens_per_image", std::to_string(stated),
              std::to_string(positions),
              "the two files do not belong together; take the processor file of this model");
  }
  file.expect_true({"do_resize", "do_rescale", "do_normalize"});
  file.expect_resample(2, "bilinear");
  file.expect_rescale();
}

}  // namespace

std::shared_ptr<const family::ImageProcessor> stretching_processor(
    const GemmaFields& fields, const family::ProcessorFile& file, const family::ImageRules& rules) {
  check_rules(rules);
  check_file(file, fields);
  const auto processor = std::make_shared<StretchingProcessor>(fields);
  processor->mean = file.colour("image_mean", kHalf, false);
  processor->std = file.colour("image_std", kHalf, true);
  return processor;
}

}  // namespace lft::gemma
