#include "src/report/picture.h"

#include <algorithm>
#include <utility>

#include "kernels/common/error.h"
#include "src/io/decode/image_decode.h"
#include "src/io/files.h"
#include "src/io/png_write.h"

namespace lft::report {
namespace {

constexpr size_t kMostBytes = 96u << 10;  // a page has eight, and several copies while written
constexpr int64_t kMostSide = 640;

/// Divides both sides by `times`; a pixel is the mean of a square of pixels.
io::RgbImage scaled_down(const io::RgbImage& image, int64_t times) {
  io::RgbImage small{image.width / times, image.height / times, {}};
  small.rgb_hwc.resize(static_cast<size_t>(3 * small.width * small.height));
  size_t at = 0;
  for (int64_t y = 0; y < small.height; ++y) {
    for (int64_t x = 0; x < small.width; ++x) {
      for (int64_t channel = 0; channel < 3; ++channel) {
        int64_t sum = 0;
        for (int64_t dy = 0; dy < times; ++dy) {
          for (int64_t dx = 0; dx < times; ++dx)
            sum += image.rgb_hwc[static_cast<size_t>(
                3 * ((y * times + dy) * image.width + x * times + dx) + channel)];
        }
        small.rgb_hwc[at++] = static_cast<uint8_t>((sum + times * times / 2) / (times * times));
      }
    }
  }
  return small;
}

}  // namespace

Picture shown_picture(std::string_view bytes, const std::string& where) {
  if (bytes.empty()) return {{}, "the picture is not in the data"};
  const bool shown = bytes.starts_with("\x89PNG") || bytes.starts_with("\xff\xd8\xff");
  if (shown && bytes.size() <= kMostBytes) return {std::string(bytes), ""};
  try {
    io::RgbImage image = io::decode_image(bytes, where);
    const int64_t side = std::max(image.width, image.height);
    const int64_t times = std::clamp<int64_t>((side + kMostSide - 1) / kMostSide, 1,
                                              std::min(image.width, image.height));
    const std::string size = std::to_string(image.width) + " x " + std::to_string(image.height);
    const io::RgbImage small = times == 1 ? std::move(image) : scaled_down(image, times);
    std::string file = io::png_file(small);
    if (file.size() > kMostBytes) file = io::jpeg_file(small);
    return {std::move(file), times == 1 ? "" : size + ", shown smaller"};
  } catch (const Error& error) {
    return {{}, "the picture is not shown: " + error.info().what};
  }
}

std::string picture_of_file(const std::string& file) {
  return io::path_exists(file) && !io::is_directory(file)
             ? shown_picture(io::read_file(file), file).bytes
             : "";
}

}  // namespace lft::report
