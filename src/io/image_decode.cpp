#include <algorithm>
#include <utility>

#include "kernels/common/error.h"
#include "src/io/image_codecs.h"

namespace lft::io {
namespace {

/// The position in the stored image that lands at (x, y) after PIL's exif_transpose.
std::pair<int64_t, int64_t> source_of(int64_t x, int64_t y, const RgbImage& stored,
                                      int orientation) {
  const int64_t right = stored.width - 1, bottom = stored.height - 1;
  switch (orientation) {
    case 2:
      return {right - x, y};
    case 3:
      return {right - x, bottom - y};
    case 4:
      return {x, bottom - y};
    case 5:
      return {y, x};
    case 6:
      return {y, bottom - x};
    case 7:
      return {right - y, bottom - x};
    case 8:
      return {right - y, x};
    default:
      return {x, y};
  }
}

RgbImage turn(RgbImage stored, int orientation) {
  if (orientation == 1) return stored;
  const bool swaps = orientation >= 5;
  RgbImage turned{swaps ? stored.height : stored.width, swaps ? stored.width : stored.height,
                  std::vector<uint8_t>(stored.rgb_hwc.size())};
  uint8_t* to = turned.rgb_hwc.data();
  for (int64_t y = 0; y < turned.height; ++y) {
    for (int64_t x = 0; x < turned.width; ++x, to += 3) {
      const auto [from_x, from_y] = source_of(x, y, stored, orientation);
      const uint8_t* from = stored.rgb_hwc.data() + 3 * (from_y * stored.width + from_x);
      std::copy(from, from + 3, to);
    }
  }
  return turned;
}

/// libtiff turns an image by its orientation; the other decoders leave that to us.
bool is_turned(const ImageHeader& header) { return header.kind == "tiff"; }

/// The decoder found the size that the header told and that was bounded.
void check_size(const ImageSize& size, const ImageHeader& header, const std::string& where) {
  const bool swaps = is_turned(header) && header.orientation >= 5;
  if (size.width == (swaps ? header.height : header.width) &&
      size.height == (swaps ? header.width : header.height))
    return;
  throw_damaged_image(
      header.kind, where,
      "the pixels are " + std::to_string(size.width) + " x " + std::to_string(size.height));
}

}  // namespace

void throw_damaged_image(const std::string& kind, const std::string& where,
                         const std::string& reason) {
  throw Error(ErrorKind::kInput, {.what = "the " + kind + " image is cut or damaged",
                                  .where = where,
                                  .found = reason,
                                  .expected = "",
                                  .next = ""});
}

std::string image_libraries() {
  return opencv_library() + ", " + jpeg_library() + ", " + png_library();
}

RgbImage decode_image(const std::string& bytes, const std::string& where,
                      const ImageLimits& limits) {
  const ImageHeader header = read_image_header(bytes, where, limits);
  RgbImage image = header.kind == "jpeg"  ? decode_jpeg(bytes, where)
                   : header.kind == "png" ? decode_png(bytes, where)
                                          : decode_with_opencv(bytes, header, where);
  check_size({image.width, image.height}, header, where);
  return is_turned(header) ? image : turn(std::move(image), header.orientation);
}

ImageSize check_image(const std::string& bytes, const std::string& where,
                      const ImageLimits& limits) {
  const ImageHeader header = read_image_header(bytes, where, limits);
  if (header.kind != "jpeg") {
    const RgbImage image = decode_image(bytes, where, limits);
    return {image.width, image.height};
  }
  const ImageSize size = check_jpeg(bytes, where);
  check_size(size, header, where);
  return header.orientation >= 5 ? ImageSize{size.height, size.width} : size;
}

}  // namespace lft::io
