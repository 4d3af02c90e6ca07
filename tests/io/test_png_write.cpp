// PNG files read back by libpng, which checks every checksum in them.
#include <gtest/gtest.h>

#include "src/io/decode/image_decode.h"
#include "src/io/png_write.h"

namespace lft::png_write_test {
using namespace lft::io;
namespace {

TEST(PngWrite, ReadsBackAsItWas) {
  // One pixel, odd sizes, and sizes one byte below, at and above a stored block of 65535
  // bytes.
  for (const auto& [width, height] :
       {std::pair<int64_t, int64_t>{1, 1}, {7, 5}, {3, 6554}, {21844, 1}, {4369, 5}, {336, 336}}) {
    RgbImage image{width, height, Pixels(static_cast<size_t>(3 * width * height))};
    for (size_t i = 0; i < image.rgb_hwc.size(); ++i)
      image.rgb_hwc[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    const RgbImage read = decode_image(png_file(image), "png");
    EXPECT_EQ(read.width, width);
    EXPECT_EQ(read.height, height);
    EXPECT_EQ(read.rgb_hwc, image.rgb_hwc) << width << " x " << height;
  }
}

}  // namespace
}  // namespace lft::png_write_test
