#include "models/qwen_vl/qwen_vl_images.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/image/image_resize.h"

namespace lft::qwen_vl {
namespace {

using image::Size;
using Json = nlohmann::json;

constexpr int64_t kMostPixels = 1ll << 28;  // 16384 x 16384

/// The file's `size`, or the two fields of older files, which take precedence.
PixelBounds bounds_of(const family::ProcessorFile& file, const PixelBounds& silent) {
  PixelBounds bounds = silent;
  const Json size = file.json.value("size", Json::object());
  if (size.is_object()) {
    const family::ProcessorFile edges{.json = size, .where = file.where, .folder = file.folder};
    bounds.least = edges.integer("shortest_edge", 1, kMostPixels, bounds.least);
    bounds.most = edges.integer("longest_edge", 1, kMostPixels, bounds.most);
  }
  bounds.least = file.integer("min_pixels", 1, kMostPixels, bounds.least);
  bounds.most = file.integer("max_pixels", 1, kMostPixels, bounds.most);
  return bounds;
}

/// The bounds of the rules if set, else the file's, else the family's.
PixelBounds bounds_of(const VisionConfig& vision, const family::ProcessorFile& file,
                      const family::ImageRules& rules) {
  const bool old = !vision.deep();
  PixelBounds bounds = bounds_of(
      file, old ? PixelBounds{56 * 56, 28 * 28 * 16384} : PixelBounds{256 * 256, 4096 * 4096});
  if (rules.min_pixels > 0) bounds.least = rules.min_pixels;
  if (rules.max_pixels > 0) bounds.most = rules.max_pixels;
  return bounds;
}

void check_part(const family::ProcessorFile& file, const char* key, int64_t of_model) {
  const int64_t of_file = file.integer(key, 1, kMaxSide, of_model);
  if (of_file == of_model) return;
  file.fail(std::string("the processor's ") + key + " is not the model's", std::to_string(of_file),
            std::to_string(of_model),
            "the two files do not belong together; take the processor file of this model");
}

class NativeProcessor : public family::ImageProcessor {
 public:
  NativeProcessor(const VisionConfig& vision, const PixelBounds& bounds)
      : patch_(vision.patch), side_(vision.side()), bounds_(bounds) {}

  family::ImagePlan plan(const Size& size) const override {
    const Size to = native_size(size, side_, bounds_);
    return {.shape = {.height = to.height, .width = to.width, .source = size},
            .text = kImageText,
            .runs = {(to.height / side_) * (to.width / side_)},
            .tower_positions = (to.height / patch_) * (to.width / patch_)};
  }

  family::TileImage make(const image::View& image) const override {
    family::TileImage made{.shape = plan({image.width, image.height}).shape, .values = {}};
    const at::Tensor resized =
        image::resize_bicubic(image::as_tensor(image), {made.shape.width, made.shape.height})
            .contiguous(at::MemoryFormat::Contiguous);
    made.values.resize(static_cast<size_t>(made.shape.values()));
    std::memcpy(made.values.data(), resized.const_data_ptr<uint8_t>(), made.values.size());
    return made;
  }

  int64_t working_bytes(const Size& size) const override {
    const Size to = native_size(size, side_, bounds_);
    // Rows are resized in one direction, then the other; the result is copied to another layout.
    return 3 * size.height * to.width + 3 * (3 * to.width * to.height);
  }

  std::string token() const override { return "<|image_pad|>"; }

  Json identity() const override {
    return {{"image_fit", "native"},      {"image_mean", mean},
            {"image_std", std},           {"min_pixels", bounds_.least},
            {"max_pixels", bounds_.most}, {"patch", patch_},
            {"position", side_}};
  }

 private:
  int64_t patch_, side_;
  PixelBounds bounds_;
};

}  // namespace

Size native_size(const Size& size, int64_t side, const PixelBounds& bounds) {
  const auto width = static_cast<double>(size.width), height = static_cast<double>(size.height);
  if (std::max(width, height) / std::min(width, height) > 200) {
    throw Error(ErrorKind::kInput,
                {.what = "the image is too long and narrow",
                 .where = "image_fit native",
                 .found = std::to_string(size.width) + "x" + std::to_string(size.height),
                 .expected = "one side at most 200 times the other",
                 .next = "crop the image to the relevant part"});
  }
  const auto of = static_cast<double>(side), least = static_cast<double>(bounds.least),
             most = static_cast<double>(bounds.most);
  // nearbyint: ties to even, like Python's round().
  double w = std::nearbyint(width / of) * of, h = std::nearbyint(height / of) * of;
  if (w * h > most) {
    const double by = std::sqrt(height * width / most);
    w = std::max(of, std::floor(width / by / of) * of);
    h = std::max(of, std::floor(height / by / of) * of);
  } else if (w * h < least) {
    const double by = std::sqrt(least / (height * width));
    w = std::ceil(width * by / of) * of;
    h = std::ceil(height * by / of) * of;
  }
  return {static_cast<int64_t>(w), static_cast<int64_t>(h)};
}

Json with_bounds(const VisionConfig& vision, const Json& file, const family::ImageRules& rules) {
  Json fitted = file;
  if (rules.min_pixels <= 0 && rules.max_pixels <= 0) return fitted;
  const PixelBounds bounds = bounds_of(vision, {.json = file, .where = "", .folder = ""}, rules);
  fitted["size"] = {{"shortest_edge", bounds.least}, {"longest_edge", bounds.most}};
  // Older versions of transformers read these, and newer ones prefer them to `size`.
  if (fitted.contains("min_pixels")) fitted["min_pixels"] = bounds.least;
  if (fitted.contains("max_pixels")) fitted["max_pixels"] = bounds.most;
  return fitted;
}

std::shared_ptr<const family::ImageProcessor> native_processor(const VisionConfig& vision,
                                                               const family::ProcessorFile& file,
                                                               const family::ImageRules& rules) {
  family::expect_native(rules);
  const bool old = !vision.deep();
  const PixelBounds bounds = bounds_of(vision, file, rules);
  if (bounds.least > bounds.most) {
    const bool own = rules.min_pixels <= 0 && rules.max_pixels <= 0;
    throw Error(own ? ErrorKind::kInput : ErrorKind::kUsage,
                {.what = "the minimum number of pixels of an image is above the maximum",
                 .where = (own ? "" : "data.min_pixels and data.max_pixels, over ") + file.where +
                          ": min_pixels and max_pixels, or size",
                 .found = std::to_string(bounds.least) + " and " + std::to_string(bounds.most),
                 .expected = "min_pixels at most max_pixels",
                 .next = {}});
  }
  const auto processor = std::make_shared<NativeProcessor>(vision, bounds);
  const std::vector<float> half = {0.5f, 0.5f, 0.5f};
  processor->mean = file.colour("image_mean", old ? family::kClipMean : half, false);
  processor->std = file.colour("image_std", old ? family::kClipStd : half, true);
  file.expect_true({"do_resize", "do_rescale", "do_normalize"});
  file.expect_resample(3, "bicubic");
  file.expect_rescale();
  check_part(file, "patch_size", vision.patch);
  check_part(file, "merge_size", vision.merge);
  check_part(file, "temporal_patch_size", 2);
  return processor;
}

}  // namespace lft::qwen_vl
