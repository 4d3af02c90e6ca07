#include "models/llava/llava_images.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/image/image_pad.h"
#include "models/image/image_resize.h"

namespace lft::llava {
namespace {

using image::Size;
using Json = nlohmann::json;

// Maximum number of pixels of the padded square, or of the resized strip before cropping: 16384 x
// 16384.
constexpr int64_t kMaxCanvas = 1ll << 28;

enum class Way { kPad, kCrop, kStretch };

/// Whether the file names an image processor with this prefix.
bool is_type(const Json& file, std::string_view name) {
  for (const char* key : {"image_processor_type", "feature_extractor_type"}) {
    const Json type = file.value(key, Json());
    if (type.is_string()) return type.get_ref<const std::string&>().starts_with(name);
  }
  return false;
}

Json size_of(const Json& file) { return file.value("size", Json()); }

class SquareProcessor : public family::ImageProcessor {
 public:
  SquareProcessor(const LlavaFields& fields, Way way, std::string fit)
      : size_(fields.vision.image_size),
        positions_(fields.image_positions({})),
        tower_positions_(fields.tower_positions()),
        patch_(fields.vision.patch_size),
        keeps_source_(fields.kind != Kind::kLlava),
        way_(way),
        fit_(std::move(fit)) {}

  family::ImagePlan plan(const Size& size) const override {
    const Size canvas = canvas_of(size);
    if (canvas.width * canvas.height > kMaxCanvas) {
      throw Error(ErrorKind::kInput,
                  {.what = "the image is too long and narrow",
                   .where = "image_fit " + fit_,
                   .found = std::to_string(size.width) + "x" + std::to_string(size.height) +
                            ", which would become " + std::to_string(canvas.width) + "x" +
                            std::to_string(canvas.height),
                   .expected = "at most " + std::to_string(kMaxCanvas) + " pixels",
                   .next = "crop the image to the relevant part"});
    }
    family::ImageShape shape = *fixed_shape();
    if (keeps_source_) shape.source = size;
    return {
        .shape = shape, .text = token(), .runs = {positions_}, .tower_positions = tower_positions_};
  }

  family::TileImage make(const image::View& image) const override {
    const Size size{image.width, image.height};
    family::TileImage made{.shape = plan(size).shape, .values = {}};
    if (way_ == Way::kStretch || size.width == size.height) {
      store(image::resize_bicubic(image::as_tensor(image), {size_, size_}), made);
    } else if (way_ == Way::kCrop) {
      const Size to = canvas_of(size);
      const at::Tensor resized = image::resize_bicubic(image::as_tensor(image), to);
      store(resized.narrow(2, (to.height - size_) / 2, size_)
                .narrow(3, (to.width - size_) / 2, size_),
            made);
    } else {
      const std::vector<uint8_t> canvas = image::pad_to_square(image, *square_colour());
      const int64_t side = std::max(size.width, size.height);
      store(image::resize_bicubic(
                image::as_tensor({.rgb_hwc = canvas.data(), .width = side, .height = side}),
                {size_, size_}),
            made);
    }
    return made;
  }

  int64_t working_bytes(const Size& size) const override {
    const Size canvas = canvas_of(size);
    const int64_t resized = 3 * canvas.width * canvas.height, square = 3 * size_ * size_;
    // Rows are resized in one direction, then in the other.
    if (way_ == Way::kStretch) return 3 * size.height * size_ + 2 * square;
    return pads() ? 3 * canvas.height * size_ + 2 * square : 2 * resized + square;
  }

  std::optional<std::array<uint8_t, 3>> square_colour() const override {
    if (!pads()) return std::nullopt;
    std::array<uint8_t, 3> colour{};
    for (size_t c = 0; c < 3; ++c)
      colour[c] = static_cast<uint8_t>(std::clamp(static_cast<double>(mean[c]) * 255, 0.0, 255.0));
    return colour;
  }

  std::string token() const override { return "<image>"; }

  Json identity() const override {
    Json identity = {{"image_fit", fit_},
                     {"image_mean", mean},
                     {"image_std", std},
                     {"image_positions", positions_},
                     {"image_size", size_}};
    if (way_ == Way::kStretch) identity["stretched"] = true;
    return identity;
  }

  /// After padding, its short side is less than one patch of the vision tower; after cropping, all
  /// but a patch's share of it is lost.
  std::string narrow(const Size& size) const override {
    const auto [low, high] = std::minmax(size.width, size.height);
    if (way_ == Way::kStretch) return {};
    if (low * size_ >= high * patch_) return {};
    const double share = static_cast<double>(low) / static_cast<double>(high);
    char text[128];
    if (pads()) {
      std::snprintf(text, sizeof text,
                    "padded, it is %.2g of %lld pixels wide, less than one patch of %lld",
                    share * static_cast<double>(size_), static_cast<long long>(size_),
                    static_cast<long long>(patch_));
    } else {
      std::snprintf(text, sizeof text, "cropped, %.2g%% of it is left", 100 * share);
    }
    return text;
  }

  std::optional<family::ImageShape> fixed_shape() const override {
    return family::ImageShape{.height = size_, .width = size_};
  }

 private:
  bool pads() const { return way_ == Way::kPad; }
  /// The size of an image before it becomes the square: the padded square, or the strip that is
  /// cropped, whose shorter side is the square's and whose longer one is int(size * long / short).
  /// A stretched image is resized to the square directly.
  Size canvas_of(const Size& size) const {
    const auto [width, height] = size;
    if (way_ == Way::kStretch) return {size_, size_};
    if (pads()) return {std::max(width, height), std::max(width, height)};
    return width <= height ? Size{size_, size_ * height / width}
                           : Size{size_ * width / height, size_};
  }
  static void store(const at::Tensor& square, family::TileImage& to) {
    to.values.resize(static_cast<size_t>(to.shape.values()));
    const at::Tensor contiguous = square.contiguous(at::MemoryFormat::Contiguous);
    std::memcpy(to.values.data(), contiguous.const_data_ptr<uint8_t>(), to.values.size());
  }

  int64_t size_, positions_, tower_positions_, patch_;
  bool keeps_source_;  // other images have other shapes
  Way way_;
  std::string fit_;
};

/// The behaviour of the file's own processor. A size with height and width is used directly; a
/// shortest edge is followed by a centre crop, which SigLIP's processor lacks. Only LLaVA's pads.
Way way_of(const family::ProcessorFile& file) {
  if (stretches(file.json)) return Way::kStretch;
  if (file.flag("do_pad", false) && is_type(file.json, "Llava")) return Way::kPad;
  if (!is_siglip(file.json) || file.flag("do_center_crop", false)) return Way::kCrop;
  file.fail("the processor makes no square of an image", "size " + size_of(file.json).dump(),
            "a height and a width, as SiglipImageProcessor has them", family::kItsOwnFile);
}

Way way_for(const std::string& fit, const family::ProcessorFile& file) {
  if (fit == "pad") return Way::kPad;
  const Way own = way_of(file);
  return fit == "crop" && own == Way::kPad ? Way::kCrop : own;
}

}  // namespace

bool is_siglip(const Json& file) { return is_type(file, "Siglip"); }

bool stretches(const Json& file) {
  const Json size = size_of(file);
  if (size.is_null()) return is_siglip(file);
  return size.is_object() && !size.value("height", Json()).is_null() &&
         !size.value("width", Json()).is_null() && size.value("shortest_edge", Json()).is_null();
}

Colours silent_colours(const Json& file) {
  static const std::vector<float> half = {0.5f, 0.5f, 0.5f};
  return is_siglip(file) ? Colours{half, half} : Colours{family::kClipMean, family::kClipStd};
}

void check_square(const family::ProcessorFile& file, const char* key, int64_t size) {
  const Json value = file.json.value(key, Json());
  const std::vector<Json> sides =
      value.is_object()
          ? std::vector<Json>{value.value("shortest_edge", Json()), value.value("height", Json()),
                              value.value("width", Json())}
          : std::vector<Json>{value};
  for (const Json& side : sides) {
    if (side.is_null() || side == Json(size)) continue;
    file.fail(std::string("the processor's ") + key + " is not the model's image_size",
              std::string(key) + " " + value.dump(),
              "vision_config.image_size " + std::to_string(size),
              "the two files do not belong together; take the processor file of this model");
  }
}

void set_colours(const family::ProcessorFile& file, family::ImageProcessor& processor) {
  const Colours silent = silent_colours(file.json);
  processor.mean = file.colour("image_mean", silent.mean, false);
  processor.std = file.colour("image_std", silent.std, true);
}

std::shared_ptr<const family::ImageProcessor> square_tiles(const LlavaFields& fields,
                                                           const family::ProcessorFile& file) {
  const auto processor = std::make_shared<SquareProcessor>(fields, Way::kPad, "pad");
  set_colours(file, *processor);
  return processor;
}

std::shared_ptr<const family::ImageProcessor> square_processor(const LlavaFields& fields,
                                                               const family::ProcessorFile& file,
                                                               const family::ImageRules& rules) {
  if (rules.fit != "pad" && rules.fit != "crop" && rules.fit != "native") {
    throw Error(ErrorKind::kUsage, {.what = "unknown image fit",
                                    .where = "data.image_fit",
                                    .found = "\"" + rules.fit + "\"",
                                    .expected = "pad, crop or native",
                                    .next = {}});
  }
  const Way way = way_for(rules.fit, file);
  const auto processor = std::make_shared<SquareProcessor>(fields, way, rules.fit);
  set_colours(file, *processor);
  file.expect_true({"do_resize", "do_rescale", "do_normalize"});
  if (way == Way::kCrop) file.expect_true({"do_center_crop"});
  file.expect_resample(3, "bicubic");
  file.expect_rescale();
  check_square(file, "crop_size", fields.vision.image_size);
  if (way != Way::kPad) check_square(file, "size", fields.vision.image_size);
  return processor;
}

}  // namespace lft::llava
