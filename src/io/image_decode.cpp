#include <algorithm>
#include <initializer_list>
#include <utility>

#include "kernels/common/error.h"
#include "src/io/image_codecs.h"

namespace lft::io {
namespace {

/// As PIL's exif_transpose.
RgbImage turn(RgbImage stored, int orientation) {
  if (orientation == 1) return stored;
  const auto is_one_of = [&](std::initializer_list<int> those) {
    return std::find(those.begin(), those.end(), orientation) != those.end();
  };
  const bool swaps = orientation >= 5, mirrors = is_one_of({2, 3, 7, 8}),
             flips = is_one_of({3, 4, 6, 7});
  RgbImage turned{swaps ? stored.height : stored.width, swaps ? stored.width : stored.height,
                  std::vector<uint8_t>(stored.rgb_hwc.size())};
  uint8_t* to = turned.rgb_hwc.data();
  for (int64_t y = 0; y < turned.height; ++y) {
    for (int64_t x = 0; x < turned.width; ++x, to += 3) {
      const int64_t across = swaps ? y : x, down = swaps ? x : y;
      const int64_t from_x = mirrors ? stored.width - 1 - across : across,
                    from_y = flips ? stored.height - 1 - down : down;
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
  refuse(ErrorKind::kInput, "the " + kind + " image is cut or damaged", where, reason);
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
