// The model's square from a photograph, as transformers' LlavaImageProcessor (torchvision backend)
// makes it: all in uint8.
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/common/error.h"
#include "src/data/encode.h"
#include "src/io/file_handle.h"
#include "src/io/files.h"

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

/// What an image is padded with.
std::array<uint8_t, 3> background_of(const std::vector<float>& mean) {
  std::array<uint8_t, 3> background{};
  for (size_t c = 0; c < 3; ++c)
    background[c] =
        static_cast<uint8_t>(std::clamp(static_cast<double>(mean[c]) * 255, 0.0, 255.0));
  return background;
}

std::vector<uint8_t> pad_to_square(const io::RgbImage& image, int64_t side,
                                   const std::vector<float>& mean) {
  const std::array<uint8_t, 3> background = background_of(mean);
  std::vector<uint8_t> canvas(static_cast<size_t>(3 * side * side));
  for (size_t i = 0; i < canvas.size(); i += 3) std::memcpy(&canvas[i], background.data(), 3);
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

/// A file's bytes, in the thread's own buffer: taken anew for each file, which has another size,
/// they would leave holes in malloc's arenas that no later one fills. A large one is given back.
class FileBytes {
 public:
  FileBytes(const std::string& path, uint64_t max_bytes) {
    const io::FileHandle file = io::FileHandle::open_to_read(path);
    if (file.size() > max_bytes) io::read_file(path, max_bytes);  // says so
    if (buffer_.capacity() < file.size()) Buffer().swap(buffer_);
    buffer_.resize(file.size());
    file.read_at(0, buffer_.data(), buffer_.size());
  }
  ~FileBytes() {
    if (buffer_.size() >= io::kLargeBlock) Buffer().swap(buffer_);
  }
  FileBytes(const FileBytes&) = delete;
  std::string_view bytes() const { return {buffer_.data(), buffer_.size()}; }

 private:
  using Buffer = std::vector<char, io::PageAllocator<char>>;
  static thread_local Buffer buffer_;
};
thread_local FileBytes::Buffer FileBytes::buffer_;

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

PixelImage read_fitted(const std::string& path, const EncodeOptions& options) {
  const int64_t size = options.config.vision.image_size;
  const auto decode = [&] {
    const FileBytes file(path, options.image_limits.max_bytes);
    const std::string_view bytes = file.bytes();
    const io::ImageHeader header = io::read_image_header(bytes, path, options.image_limits);
    check_fit(header.width, header.height, size, options.image_fit);
    return options.image_fit == "pad"
               ? io::decode_square(bytes, path, background_of(options.image_mean),
                                   options.image_limits)
               : io::decode_image(bytes, path, options.image_limits);
  };
  return fit_image(decode(), size, options.image_fit, options.image_mean);
}

int64_t read_bytes(const io::ImageHeader& header, int64_t file_bytes, int64_t size,
                   const std::string& image_fit) {
  const int64_t pixels = 3 * header.width * header.height;
  const bool swaps = header.orientation >= 5;
  const Canvas canvas = canvas_of(swaps ? header.height : header.width,
                                  swaps ? header.width : header.height, size, image_fit);
  const int64_t resized = 3 * canvas.width * canvas.height, square = 3 * size * size;
  if (image_fit == "pad") {
    // The whole square from the first byte on; its rows are resized one way, then the other.
    return resized + file_bytes + header.beside + 3 * canvas.height * size + 2 * square;
  }
  const int64_t turned = header.orientation > 1 && header.kind != "tiff" ? pixels : 0;
  return pixels + file_bytes + std::max(header.beside, turned) + 2 * resized + square;
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
