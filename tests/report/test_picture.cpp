// Pictures in reports: small files as they are, larger ones and other formats scaled.
#include <gtest/gtest.h>

#include "src/io/image.h"
#include "src/io/png_write.h"
#include "src/report/picture.h"

namespace lft::picture_test {
using namespace lft::io;
using namespace lft::report;
namespace {

TEST(Picture, LargeOnesAndOtherFormatsAreScaledToPng) {
  RgbImage large{2000, 1000, {}};
  large.rgb_hwc.resize(6'000'000);
  uint32_t noise = 1;
  for (uint8_t& value : large.rgb_hwc)
    value = static_cast<uint8_t>((noise = noise * 1664525 + 1013904223) >> 24);
  const std::string png = png_file(large);
  ASSERT_GT(png.size(), 512u << 10);
  const Picture shown = shown_picture(png, "x.png");
  if (image_libraries().empty()) {
    EXPECT_EQ(shown.bytes, "");
    EXPECT_NE(shown.note.find("the picture is not shown: "), std::string::npos) << shown.note;
    return;
  }
  EXPECT_EQ(shown.note, "2000 x 1000, shown smaller");
  const RgbImage small = decode_image(shown.bytes, "small");
  EXPECT_EQ(small.width, 500);  // a fourth: at most 640
  EXPECT_EQ(small.height, 250);
  double mean = 0;  // of uniform noise in 4 x 4 pixels: 127.5, and 73.9 / 4 from it
  for (const uint8_t value : small.rgb_hwc) mean += value / 375'000.0;
  EXPECT_NEAR(mean, 127.5, 1);
  // A PPM of one red pixel.
  const Picture red = shown_picture(std::string("P6 1 1 255\n\xff\x00\x00", 14), "x.ppm");
  EXPECT_TRUE(red.bytes.starts_with("\x89PNG")) << red.note;
  EXPECT_EQ(red.note, "");
}

TEST(Picture, SmallFilesDoNotChangeAndOthersSayWhy) {
  const std::string small = png_file({1, 1, {1, 2, 3}});
  EXPECT_EQ(shown_picture(small, "x").bytes, small);
  EXPECT_EQ(shown_picture("", "x").note, "the picture is not in the data");
  const Picture text = shown_picture("no image", "x");
  EXPECT_EQ(text.bytes, "");
  EXPECT_TRUE(text.note.starts_with("the picture is not shown: ")) << text.note;
}

}  // namespace
}  // namespace lft::picture_test
