// Positions are planned for the size of the decoded pixels, for every place in which a file stores
// its orientation. tests/peers/test_image_files.py compares the accepted places with PIL.
#include <gtest/gtest.h>
#include <zlib.h>

#include "data/fixtures.h"
#include "src/data/encode.h"
#include "src/data/encoded_image.h"
#include "src/io/decode/image_decode.h"
#include "src/io/png_write.h"
#include "support/expect_error.h"

namespace lft::image_plan_test {
using namespace lft::data;
using namespace lft::io;
using test::ByteTokenizer;
using test::small_options;
using test::TempDir;
namespace {

std::string big(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string both = type + data;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(both.data()), static_cast<uInt>(both.size()));
  return big(static_cast<uint32_t>(data.size())) + both + big(static_cast<uint32_t>(crc));
}

/// An EXIF block that contains only an orientation.
std::string turned(char orientation) {
  std::string block("MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0\0\0\0\0\0\0\0", 26);
  block[19] = orientation;
  return block;
}

/// 200 x 150 pixels of noise, which take more than 64 KiB, with chunks at both ends.
std::string png_with(const std::string& before, const std::string& after) {
  RgbImage image{200, 150, Pixels(3 * 200 * 150)};
  uint32_t state = 1;
  for (uint8_t& value : image.rgb_hwc) {
    state = state * 1664525 + 1013904223;
    value = static_cast<uint8_t>(state >> 24);
  }
  std::string png = png_file(image);
  constexpr size_t kHeader = 33, kEnd = 12;
  png.insert(png.size() - kEnd, after);
  return png.insert(kHeader, before);
}

TEST(ImagePlan, AnOrientationAfterThePixelsIsInThePlanAndInThePixels) {
  const TempDir dir;
  const std::string long_text = chunk(
                        "tEXt", "parameters" + std::string(1, '\0') + std::string(70'000, 'p')),
                    exif = chunk("eXIf", turned(6));
  int turns = 0;
  for (const auto& [name, png] :
       std::map<std::string, std::string>{{"upright", png_with("", "")},
                                          {"before", png_with(exif, "")},
                                          {"long", png_with(long_text + exif, "")},
                                          {"after", png_with("", exif)},
                                          {"after-text", png_with("", long_text + exif)},
                                          {"last", png_with(exif, chunk("eXIf", turned(1)))},
                                          {"beyond", png_with("", "") + exif}}) {
    const std::string path = dir.write(name + ".png", png);
    ASSERT_GT(png.size(), 64U << 10) << name;
    const EncodeOptions options = small_options();
    const EncodedImage opened(FileHandle::open_to_read(path), options);
    const ImageHeader planned = opened.header(), whole = read_image_header(png, path);
    EXPECT_EQ(planned.orientation, whole.orientation) << name;
    const RgbImage image = decode_image(png, path);
    const image::Size size = opened.size();
    EXPECT_EQ(size.width, image.width) << name;
    EXPECT_EQ(size.height, image.height) << name;
    turns += planned.orientation == 6;
  }
  EXPECT_EQ(turns, 4);
}

/// Many small chunks are read together, and a length beyond the end of the file ends it.
TEST(ImagePlan, ManyChunksAndLengthsBeyondTheEndAreRead) {
  const TempDir dir;
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += chunk("teXt", "");
  const std::string good = dir.write("many.png", png_with("", many + chunk("eXIf", turned(8)))),
                    cut = dir.write("cut.png", png_with(big(0x7fffffff) + "tEXt", ""));
  const EncodeOptions options = small_options();
  const auto orientation = [&](const std::string& path) {
    return EncodedImage(FileHandle::open_to_read(path), options).header().orientation;
  };
  EXPECT_EQ(orientation(good), 8);
  EXPECT_EQ(orientation(cut), 1);
}

/// Produces pixels of a size other than planned.
class Unsteady : public family::ImageProcessor {
 public:
  family::ImagePlan plan(const image::Size&) const override {
    return {.shape = {.tiles = 1, .height = 4, .width = 8}, .text = "<image>", .runs = {2}};
  }
  family::TileImage make(const image::View&) const override {
    return {.shape = {.tiles = 1, .height = 8, .width = 8},
            .values = std::vector<uint8_t>(size_t{3} * 8 * 8)};
  }
  int64_t working_bytes(const image::Size&) const override { return 0; }
  std::string token() const override { return "<image>"; }
  nlohmann::json identity() const override { return nlohmann::json::object(); }
};

TEST(ImagePlan, PixelsOfAnotherSizeThanTheHeadersNameTheirRow) {
  const TempDir dir;
  dir.write("a.png", png_with("", ""));
  Row row{.id = "r6",
          .where = "d.jsonl:6",
          .conversation = {text::messages_of({{"<image>\nQ", "A"}})},
          .images = {"a.png"}};
  EncodeOptions options = small_options();
  options.images = std::make_shared<Unsteady>();
  const std::string said = test::thrown_text(
      ErrorKind::kInput, [&] { encode_row(row, dir.path(), ByteTokenizer(), options); }, __FILE__,
      __LINE__);
  for (const char* piece : {"d.jsonl:6 (id \"r6\")", "a.png", "not of the size"})
    EXPECT_NE(said.find(piece), std::string::npos) << said;
  EXPECT_EQ(said.find("lft prepare"), std::string::npos) << said;
}

}  // namespace
}  // namespace lft::image_plan_test
