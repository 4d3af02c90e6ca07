#include <algorithm>
#include <utility>

#include "kernels/common/error.h"
#include "src/io/image_codecs.h"

namespace lft {
namespace {

/// The position in the stored image that lands at (x, y) after PIL's exif_transpose.
std::pair<int64_t, int64_t> source_of(int64_t x, int64_t y, const RgbImage& stored, int orientation) {
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
  RgbImage turned{swaps ? stored.height : stored.width, swaps ? stored.width : stored.height, std::vector<uint8_t>(stored.rgb_hwc.size())};
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

}  // namespace

void throw_damaged_image(const std::string& kind, const std::string& where, const std::string& reason) {
  throw Error(ErrorKind::kInput,
              {.what = "the " + kind + " image is cut or damaged", .where = where, .found = reason, .expected = "", .next = ""});
}

RgbImage decode_image(const std::string& bytes, const std::string& where, const ImageLimits& limits) {
  const ImageHeader header = read_image_header(bytes, where, limits);
  RgbImage image = header.kind == "jpeg"  ? decode_jpeg(bytes, where)
                   : header.kind == "png" ? decode_png(bytes, where)
                                          : decode_with_opencv(bytes, header, where);
  const bool is_turned = header.kind == "tiff";  // libtiff has done it
  const bool swaps = is_turned && header.orientation >= 5;
  if (image.width != (swaps ? header.height : header.width) || image.height != (swaps ? header.width : header.height)) {
    throw_damaged_image(header.kind, where, "the pixels are " + std::to_string(image.width) + " x " + std::to_string(image.height));
  }
  return is_turned ? image : turn(std::move(image), header.orientation);
}

}  // namespace lft
