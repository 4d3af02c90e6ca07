#include "models/image/image_pad.h"

#include <algorithm>
#include <cstring>

namespace lft::image {

std::vector<uint8_t> pad_to_square(const View& image, const std::array<uint8_t, 3>& colour) {
  const int64_t side = std::max(image.width, image.height);
  std::vector<uint8_t> canvas(static_cast<size_t>(3 * side * side));
  for (size_t i = 0; i < canvas.size(); i += 3) std::memcpy(&canvas[i], colour.data(), 3);
  const int64_t left = (side - image.width) / 2, top = (side - image.height) / 2;
  for (int64_t y = 0; y < image.height; ++y) {
    std::memcpy(&canvas[static_cast<size_t>(3 * ((top + y) * side + left))],
                &image.rgb_hwc[static_cast<size_t>(3 * y * image.width)],
                static_cast<size_t>(3 * image.width));
  }
  return canvas;
}

}  // namespace lft::image
