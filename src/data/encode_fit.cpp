// The model's square from a photograph, as transformers' LlavaImageProcessor (torchvision backend)
// makes it: all in uint8.
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "kernels/common/error.h"
#include "src/data/encode.h"

namespace lft::data {
namespace {

// The padded square, or the resized strip before it is cropped, may hold this many pixels: 16384 x
// 16384.
constexpr int64_t kMaxCanvas = 1ll << 28;

/// What an image is brought to before it becomes the square: the padded square, or the strip that
/// is cropped.
struct Canvas {
  int64_t width = 0, height = 0;
};

Canvas canvas_of(int64_t width, int64_t height, int64_t size, const std::string& image_fit) {
  if (image_fit == "pad") return {std::max(width, height), std::max(width, height)};
  // The shorter side becomes `size`, the longer one int(size * long / short).
  return width <= height ? Canvas{size, size * height / width}
                         : Canvas{size * width / height, size};
}

at::Tensor resize(const uint8_t* rgb_hwc, int64_t width, int64_t height, int64_t to_width,
                  int64_t to_height) {
  // Interleaved bytes are an NCHW tensor in channels_last layout: no copy.
  const at::Tensor image = at::from_blob(const_cast<uint8_t*>(rgb_hwc), {1, 3, height, width},
                                         {3 * height * width, 1, 3 * width, 3}, at::kByte);
  if (width == to_width && height == to_height) return image;
  return at::_upsample_bicubic2d_aa(image, {to_height, to_width}, /*align_corners=*/false);
}

PixelImage to_pixels(const at::Tensor& square, int64_t size) {
  PixelImage pixels;
  pixels.size = size;
  pixels.chw.resize(static_cast<size_t>(3 * size * size));
  const at::Tensor contiguous = square.contiguous(at::MemoryFormat::Contiguous);
  std::memcpy(pixels.chw.data(), contiguous.const_data_ptr<uint8_t>(), pixels.chw.size());
  return pixels;
}

std::vector<uint8_t> pad_to_square(const io::RgbImage& image, int64_t side,
                                   const std::vector<float>& mean) {
  uint8_t background[3];
  for (int c = 0; c < 3; ++c)
    background[c] =
        static_cast<uint8_t>(std::clamp(static_cast<double>(mean[c]) * 255, 0.0, 255.0));
  std::vector<uint8_t> canvas(static_cast<size_t>(3 * side * side));
  for (size_t i = 0; i < canvas.size(); i += 3) std::memcpy(&canvas[i], background, 3);
  const int64_t left = (side - image.width) / 2, top = (side - image.height) / 2;
  for (int64_t y = 0; y < image.height; ++y) {
    std::memcpy(&canvas[static_cast<size_t>(3 * ((top + y) * side + left))],
                &image.rgb_hwc[static_cast<size_t>(3 * y * image.width)],
                static_cast<size_t>(3 * image.width));
  }
  return canvas;
}

PixelImage fit_pad(const io::RgbImage& image, int64_t size, const std::vector<float>& mean) {
  const int64_t side = std::max(image.width, image.height);
  if (image.width == image.height)
    return to_pixels(resize(image.rgb_hwc.data(), side, side, size, size), size);
  const std::vector<uint8_t> canvas = pad_to_square(image, side, mean);
  return to_pixels(resize(canvas.data(), side, side, size, size), size);
}

PixelImage fit_crop(const io::RgbImage& image, int64_t size) {
  const auto [width, height] = canvas_of(image.width, image.height, size, "crop");
  const at::Tensor resized = resize(image.rgb_hwc.data(), image.width, image.height, width, height);
  return to_pixels(resized.narrow(2, (height - size) / 2, size).narrow(3, (width - size) / 2, size),
                   size);
}

}  // namespace

void check_fit(int64_t width, int64_t height, int64_t size, const std::string& image_fit) {
  const Canvas canvas = canvas_of(width, height, size, image_fit);
  if (canvas.width * canvas.height <= kMaxCanvas) return;
  refuse(ErrorKind::kInput, "the image is too long and narrow", "image_fit " + image_fit,
         std::to_string(width) + "x" + std::to_string(height) + ", which would become " +
             std::to_string(canvas.width) + "x" + std::to_string(canvas.height),
         "at most " + std::to_string(kMaxCanvas) + " pixels",
         "cut the image to the part that matters");
}

PixelImage fit_image(const io::RgbImage& image, int64_t size, const std::string& image_fit,
                     const std::vector<float>& mean) {
  if (image_fit != "pad" && image_fit != "crop") {
    refuse(ErrorKind::kUsage, "unknown image fit", "data.image_fit", image_fit, "pad or crop");
  }
  check_fit(image.width, image.height, size, image_fit);
  return image_fit == "pad" ? fit_pad(image, size, mean) : fit_crop(image, size);
}

}  // namespace lft::data
