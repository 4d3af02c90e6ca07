#include "models/image/image_lanczos.h"

#include <algorithm>
#include <cmath>

namespace lft::image {
namespace {

constexpr int kPrecision = 32 - 8 - 2;
constexpr double kSupport = 3;

double sinc(double x) {
  if (x == 0) return 1;
  x *= M_PI;
  return std::sin(x) / x;
}

double lanczos(double x) { return x >= -kSupport && x < kSupport ? sinc(x) * sinc(x / 3) : 0; }

/// For each output position, the first input position and the weights from there on.
struct Taps {
  int64_t width = 0;  // weights per output position
  std::vector<int64_t> first, count;
  std::vector<int32_t> weights;
};

Taps make_taps(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to),
               wide = std::max(scale, 1.0), support = kSupport * wide;
  Taps taps{.width = static_cast<int64_t>(std::ceil(support)) * 2 + 1,
            .first = {},
            .count = {},
            .weights = {}};
  taps.weights.assign(static_cast<size_t>(taps.width * to), 0);
  std::vector<double> row(static_cast<size_t>(taps.width));
  for (int64_t place = 0; place < to; ++place) {
    const double centre = (static_cast<double>(place) + 0.5) * scale;
    const int64_t low = std::max<int64_t>(0, static_cast<int64_t>(centre - support + 0.5));
    const int64_t high = std::min(from, static_cast<int64_t>(centre + support + 0.5));
    double sum = 0;
    for (int64_t i = 0; i < high - low; ++i) {
      row[static_cast<size_t>(i)] =
          lanczos((static_cast<double>(i + low) - centre + 0.5) * (1.0 / wide));
      sum += row[static_cast<size_t>(i)];
    }
    for (int64_t i = 0; i < high - low; ++i) {
      const double weight = sum != 0 ? row[static_cast<size_t>(i)] / sum : 0;
      taps.weights[static_cast<size_t>(place * taps.width + i)] =
          static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kPrecision));
    }
    taps.first.push_back(low);
    taps.count.push_back(high - low);
  }
  return taps;
}

uint8_t rounded(int64_t sum) {
  return static_cast<uint8_t>(std::clamp<int64_t>(sum >> kPrecision, 0, 255));
}

std::vector<uint8_t> along_rows(const View& in, int64_t to) {
  const Taps taps = make_taps(in.width, to);
  std::vector<uint8_t> out(static_cast<size_t>(3 * to * in.height));
  for (int64_t y = 0; y < in.height; ++y) {
    const uint8_t* line = in.rgb_hwc + 3 * y * in.width;
    uint8_t* put = out.data() + 3 * y * to;
    for (int64_t x = 0; x < to; ++x, put += 3) {
      const int32_t* weights = taps.weights.data() + x * taps.width;
      const uint8_t* pixel = line + 3 * taps.first[static_cast<size_t>(x)];
      int64_t red = 1 << (kPrecision - 1), green = red, blue = red;
      for (int64_t i = 0; i < taps.count[static_cast<size_t>(x)]; ++i, pixel += 3) {
        red += static_cast<int64_t>(pixel[0]) * weights[i];
        green += static_cast<int64_t>(pixel[1]) * weights[i];
        blue += static_cast<int64_t>(pixel[2]) * weights[i];
      }
      put[0] = rounded(red);
      put[1] = rounded(green);
      put[2] = rounded(blue);
    }
  }
  return out;
}

std::vector<uint8_t> along_columns(const View& in, int64_t to) {
  const Taps taps = make_taps(in.height, to);
  const int64_t row = 3 * in.width;
  std::vector<uint8_t> out(static_cast<size_t>(row * to));
  std::vector<int64_t> sums(static_cast<size_t>(row));
  for (int64_t y = 0; y < to; ++y) {
    std::fill(sums.begin(), sums.end(), 1 << (kPrecision - 1));
    for (int64_t i = 0; i < taps.count[static_cast<size_t>(y)]; ++i) {
      const uint8_t* line = in.rgb_hwc + (taps.first[static_cast<size_t>(y)] + i) * row;
      const int64_t weight = taps.weights[static_cast<size_t>(y * taps.width + i)];
      for (int64_t x = 0; x < row; ++x) sums[static_cast<size_t>(x)] += line[x] * weight;
    }
    std::transform(sums.begin(), sums.end(), out.begin() + y * row, rounded);
  }
  return out;
}

}  // namespace

std::vector<uint8_t> resize_lanczos(const View& image, const Size& to) {
  // Pillow 13 shrinks a tall image along its columns first; the order matters, since passes round.
  const int64_t shorter = image.height - to.height, narrower = image.width - to.width;
  const bool columns_first = shorter > 0 && shorter > 2 * narrower;
  std::vector<uint8_t> made;
  View now = image;
  for (const bool columns : {columns_first, !columns_first}) {
    if (columns ? now.height == to.height : now.width == to.width) continue;
    made = columns ? along_columns(now, to.height) : along_rows(now, to.width);
    now = {.rgb_hwc = made.data(),
           .width = columns ? now.width : to.width,
           .height = columns ? to.height : now.height};
  }
  if (made.empty()) made.assign(image.rgb_hwc, image.rgb_hwc + 3 * image.width * image.height);
  return made;
}

}  // namespace lft::image
