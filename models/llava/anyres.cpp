#include "models/llava/anyres.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lft::llava {
namespace {

using image::Size;

double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

/// Python's int(a * b).
int64_t times(int64_t a, double b) { return static_cast<int64_t>(static_cast<double>(a) * b); }

/// Python's int(round(value, 7)): a float64 slightly below a whole number becomes that number.
int64_t whole(double value) {
  const double near = std::nearbyint(value);
  return static_cast<int64_t>(std::abs(value - near) <= 5e-8 ? near : value);
}

}  // namespace

Size best_canvas(const Size& image, const std::vector<Size>& canvases) {
  Size best = canvases.front();
  int64_t most = 0, least_padding = std::numeric_limits<int64_t>::max();
  for (const Size& canvas : canvases) {
    const double scale =
        std::min(ratio(canvas.width, image.width), ratio(canvas.height, image.height));
    const int64_t shown = std::min(times(image.width, scale) * times(image.height, scale),
                                   image.width * image.height);
    const int64_t padding = canvas.width * canvas.height - shown;
    if (shown < most || (shown == most && padding >= least_padding)) continue;
    best = canvas;
    most = shown;
    least_padding = padding;
  }
  return best;
}

Size fitted_size(const Size& image, const Size& canvas) {
  const double by_width = ratio(canvas.width, image.width),
               by_height = ratio(canvas.height, image.height);
  const auto up = [](int64_t side, double scale) {
    return static_cast<int64_t>(std::ceil(static_cast<double>(side) * scale));
  };
  if (by_width < by_height)
    return {canvas.width, std::min(up(image.height, by_width), canvas.height)};
  return {std::min(up(image.width, by_height), canvas.width), canvas.height};
}

Window covered_positions(const Size& image, const Size& positions) {
  const auto [width, height] = positions;
  if (ratio(image.width, image.height) > ratio(width, height)) {
    const int64_t rows = whole(static_cast<double>(image.height) * ratio(width, image.width)),
                  above = (height - rows) / 2;
    return {.top = above, .width = width, .height = height - 2 * above};
  }
  const int64_t columns = whole(static_cast<double>(image.width) * ratio(height, image.height)),
                before = (width - columns) / 2;
  return {.left = before, .width = width - 2 * before, .height = height};
}

Size shrunk_positions(const Size& positions, int64_t grid, int64_t most_tiles) {
  if (most_tiles == 0) return positions;
  const double over =
      std::sqrt(ratio(positions.width * positions.height, most_tiles * grid * grid));
  if (over <= 1.1) return positions;
  const auto shrunk = [over](int64_t side) {
    return static_cast<int64_t>(std::floor(static_cast<double>(side) / over));
  };
  return {shrunk(positions.width), shrunk(positions.height)};
}

}  // namespace lft::llava
