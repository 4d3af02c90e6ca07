#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "src/io/decode/image_decode.h"
#include "src/io/files.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace lft::image_test {
using namespace lft::io;
namespace {

const std::string kImages = LFT_SOURCE_DIR "/tests/goldens/images/";

RgbImage load_image(const std::string& root, const std::string& name,
                    const ImageLimits& limits = {}) {
  const std::string path = image_path(root, name, limits.follow_symlinks);
  return decode_image(read_file(path, limits.max_bytes), path, limits);
}

std::string hex(const Pixels& bytes) {
  std::string out;
  for (const uint8_t byte : bytes) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

std::string big(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string little(uint32_t value) {
  const std::string text = big(value);
  return {text.rbegin(), text.rend()};
}

std::string png_claiming(uint32_t width, uint32_t height) {
  return std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) + big(width) + big(height) +
         std::string("\1\0\0\0\0", 5) + "crc!";
}

std::string jpeg_claiming(uint16_t width, uint16_t height) {
  std::string bytes("\xff\xd8\xff\xc0\0\x11\x08", 7);
  bytes += big((uint32_t{height} << 16) | width);
  return bytes + std::string("\3\1\x22\0\2\x11\1\3\x11\1\xff\xda\0\x0c", 14);
}

std::string bmp_claiming(uint32_t width, uint32_t height) {
  return "BM" + little(100) + little(0) + little(54) + little(40) + little(width) + little(height) +
         std::string("\1\0\x18\0", 4) + std::string(24, '\0');
}

std::string tiff_claiming(uint32_t width, uint32_t height) {
  std::string bytes = std::string("II*\0", 4) + little(8) + std::string("\2\0", 2);
  bytes += std::string("\0\1\4\0", 4) + little(1) + little(width);
  return bytes + std::string("\1\1\4\0", 4) + little(1) + little(height) + little(0);
}

std::string webp_claiming(uint32_t width, uint32_t height) {
  return "RIFF" + little(22) + "WEBPVP8X" + little(10) + little(0) +
         little(width - 1).substr(0, 3) + little(height - 1).substr(0, 3);
}

TEST(Image, EqualsPilForEveryKind) {
  std::ifstream expected(kImages + "expected.txt");
  std::string name, pixels;
  int64_t width = 0, height = 0;
  int count = 0;
  while (expected >> name >> width >> height >> pixels) {
    SCOPED_TRACE(name);
    const RgbImage image = load_image(kImages, name);
    EXPECT_EQ(image.width, width);
    EXPECT_EQ(image.height, height);
    EXPECT_EQ(hex(image.rgb_hwc), pixels);
    ++count;
  }
  EXPECT_GE(count, 60);
}

TEST(Image, HeaderTellsKindStoredSizeAndOrientation) {
  const ImageHeader jpeg = read_image_header(read_file(kImages + "exif6.jpg"), "exif6.jpg");
  EXPECT_EQ(jpeg.kind, "jpeg");
  EXPECT_EQ(jpeg.width, 13);
  EXPECT_EQ(jpeg.height, 9);
  EXPECT_EQ(jpeg.orientation, 6);
  EXPECT_EQ(read_image_header(read_file(kImages + "png_named.jpg"), "x").kind, "png");
}

TEST(Image, BombsAreRefusedFromTheHeader) {
  for (const std::string& bomb :
       {png_claiming(30000, 30000), png_claiming(0x7fffffff, 0x7fffffff),
        png_claiming(0xffffffff, 1), jpeg_claiming(65535, 65535),
        bmp_claiming(0x7fffffff, 0x7fffffff), bmp_claiming(30000, 0x80000000),
        tiff_claiming(0xffffffff, 0xffffffff), tiff_claiming(30000, 30000),
        webp_claiming(1 << 24, 1 << 24), webp_claiming(16384, 16384)}) {
    EXPECT_LFT_ERROR(ErrorKind::kInput, "image too large", decode_image(bomb, "bomb"));
  }
}

TEST(Image, LimitsAreTheCallers) {
  const std::string bytes = read_file(kImages + "ss0.jpg");  // 13 x 9
  EXPECT_NO_THROW(decode_image(bytes, "x", {.max_side = 13, .max_pixels = 117}));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "sides of at most 12",
                   decode_image(bytes, "x", {.max_side = 12}));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "13 x 9", decode_image(bytes, "x", {.max_pixels = 116}));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "file too large",
                   load_image(kImages, "ss0.jpg", {.max_bytes = 100}));
}

TEST(Image, EmptyAndImpossibleSizesAreRefused) {
  for (const std::string& bytes : {png_claiming(0, 5), jpeg_claiming(5, 0), bmp_claiming(0, 5),
                                   bmp_claiming(0xfffffff0, 5), tiff_claiming(5, 0)}) {
    EXPECT_LFT_ERROR(ErrorKind::kInput, "a size of", decode_image(bytes, "x"));
  }
}

TEST(Image, EveryCutIsAnError) {
  // A complete JPEG ends in its two-byte end marker, a PNG in IEND and its CRC, a WebP at the RIFF
  // size; BMP and TIFF at their last pixel.
  for (const char* name :
       {"ss0.jpg", "ss2.jpg", "progressive.jpg", "cmyk.jpg", "depth8_colour2.png",
        "depth16_colour0.png", "depth4_palette.png", "lossy.webp", "lossless_alpha.webp",
        "bits24.bmp", "bits8.bmp", "rgb_plain.tif", "rgb_tiff_lzw.tif"}) {
    SCOPED_TRACE(name);
    const std::string bytes = read_file(kImages + name);
    // The bytes that pad a bitmap's last row to four are not read.
    const ImageHeader header = read_image_header(bytes, name);
    const int64_t row = header.width * (std::string_view(name) == "bits24.bmp" ? 3 : 1);
    const size_t filling = header.kind == "bmp" ? static_cast<size_t>((4 - row % 4) % 4) : 0;
    for (size_t size = 0; size < bytes.size() - filling; ++size) {
      EXPECT_THROW(decode_image(bytes.substr(0, size), "cut"), Error)
          << size << " of " << bytes.size() << " bytes";
    }
  }
}

TEST(Image, AnyFlippedByteOfAPngIsAnError) {
  const std::string bytes = read_file(kImages + "depth8_palette.png");
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] ^= 0x10;
    EXPECT_THROW(decode_image(damaged, "flipped"), Error) << "byte " << at;
  }
}

TEST(Image, FlippedBytesNeverCrashAndPrintNothing) {
  testing::internal::CaptureStderr();
  for (const char* name :
       {"ss2.jpg", "progressive.jpg", "cmyk.jpg", "exif6.jpg", "lossy_alpha.webp", "lossless.webp",
        "bits8.bmp", "rgb_tiff_lzw.tif", "palette.tif", "rgb_jpeg.tif", "bilevel.tif"}) {
    const std::string bytes = read_file(kImages + name);
    uint32_t state = 1;
    for (int round = 0; round < 300; ++round) {
      std::string damaged = bytes;
      state = state * 1664525u + 1013904223u;
      damaged[(state >> 8) % bytes.size()] ^= static_cast<char>(1u << (state >> 29));
      try {
        decode_image(damaged, name, {.max_pixels = 1 << 20});
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kInput);
      }
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  std::cerr << "others are heard";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "others are heard");
}

TEST(Image, ADamagedJpegScanIsAnErrorAlthoughPixelsCome) {
  std::string bytes = read_file(kImages + "wide300.jpg");
  std::fill(bytes.end() - 120, bytes.end() - 100, '\xff');
  EXPECT_LFT_ERROR(ErrorKind::kInput, "the jpeg image is cut or damaged", decode_image(bytes, "x"));
}

TEST(Image, WhatIsNoImageIsNamed) {
  const test::TempDir dir;
  const auto refused = [&](const std::string& bytes, const std::string& piece) {
    dir.write("a.jpg", bytes);
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, load_image(dir.path(), "a.jpg"));
  };
  refused("", "an empty file");
  refused("<!DOCTYPE html><html></html>", "a web page");
  refused("\n  <html>", "a web page");
  refused("version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer");
  refused("GIF89a\1\0\1\0", "damaged gif");
  refused("P6 4 x 255\n", "damaged pnm");
  refused(std::string("\0\0\0\x20"
                      "ftypavif",
                      12),
          "damaged AVIF or HEIC");
  refused(std::string("\0\0\0\x20"
                      "ftypisom",
                      12),
          "a video");
  refused("8BPS", "a Photoshop file");
  refused("%PDF-1.4", "a PDF");
  refused(std::string("\0\0\2\0", 4) + "TRUEVISION-XFILE." + std::string(1, '\0'), "a TGA");
  refused(std::string(1000, '\0'), "\\x00");
  refused("hello", "hello");
  refused(std::string("II*\0\x08\0\0\0\0\0", 10), "damaged or cut TIFF");
  refused("RIFF" + little(22) + "WEBPVP8X" + little(10) + little(2) + std::string(6, '\0'),
          "the webp image is cut or damaged");
}

TEST(Image, NamesStayUnderTheRoot) {
  const test::TempDir dir;
  dir.write("outside.png", read_file(kImages + "one_pixel.png"));
  dir.write("root/inside.png", read_file(kImages + "one_pixel.png"));
  const std::string root = dir.file("root");
  ASSERT_EQ(symlink("../outside.png", (root + "/link_out.png").c_str()), 0);
  ASSERT_EQ(symlink("inside.png", (root + "/link_in.png").c_str()), 0);
  ASSERT_EQ(symlink("..", (root + "/up").c_str()), 0);
  ASSERT_EQ(symlink("loop.png", (root + "/loop.png").c_str()), 0);
  ASSERT_EQ(mkfifo((root + "/pipe.png").c_str(), 0600), 0);
  for (const std::string& name : {std::string("inside.png"), std::string("link_in.png"),
                                  std::string("../root/inside.png"), root + "/inside.png"}) {
    EXPECT_EQ(load_image(root, name).width, 1) << name;
  }
  for (const std::string& name :
       {std::string("../outside.png"), std::string("link_out.png"), std::string("up/outside.png"),
        dir.file("outside.png"), std::string("/dev/zero"), std::string("/proc/self/mem"),
        std::string("missing/../../outside.png")}) {
    EXPECT_LFT_ERROR(ErrorKind::kInput, "outside its folder", load_image(root, name));
  }
  EXPECT_LFT_ERROR(ErrorKind::kInput, "device, pipe or socket", load_image(root, "pipe.png"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "a directory", load_image(root, "."));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "No such file", load_image(root, "missing.png"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "cannot resolve", load_image(root, "loop.png"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not a file name",
                   load_image(root, std::string("inside.png\0x", 12)));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not a file name", load_image(root, ""));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "URL", load_image(root, "https://example.com/a.png"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "URL", load_image(root, "data:image/png;base64,AAAA"));
}

TEST(Image, ALinkOutOfTheRootIsFollowedWhereAskedAndNothingElseLeavesIt) {
  const test::TempDir dir;
  dir.write("elsewhere/a.png", read_file(kImages + "one_pixel.png"));
  dir.write("root/inside.png", read_file(kImages + "one_pixel.png"));
  const std::string root = dir.file("root");
  ASSERT_EQ(symlink(dir.file("elsewhere").c_str(), (root + "/coco").c_str()), 0);
  ASSERT_EQ(symlink("../elsewhere/a.png", (root + "/a.png").c_str()), 0);
  ASSERT_EQ(symlink(root.c_str(), dir.file("linked_root").c_str()), 0);
  for (const std::string& name : {std::string("coco/a.png"), std::string("a.png"),
                                  root + "/coco/a.png", std::string("./coco/../a.png")}) {
    EXPECT_EQ(load_image(root, name, {.follow_symlinks = true}).width, 1) << name;
  }
  EXPECT_EQ(load_image(dir.file("linked_root"), "coco/a.png", {.follow_symlinks = true}).width, 1);
  EXPECT_EQ(load_image(root + "/", "inside.png", {.follow_symlinks = true}).width, 1);
  for (const char* name : {"../elsewhere/a.png", "coco/../../elsewhere/a.png", "/dev/zero"}) {
    EXPECT_LFT_ERROR(ErrorKind::kInput, "outside its folder",
                     load_image(root, name, {.follow_symlinks = true}));
  }
  EXPECT_EQ(load_image(root, dir.file("root/../root/a.png"), {.follow_symlinks = true}).width, 1);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "set data.follow_symlinks: true",
                   load_image(root, "coco/a.png"));
}

TEST(Image, WithoutARootAnyRegularFileIsRead) {
  EXPECT_EQ(load_image("", kImages + "one_pixel.png").width, 1);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not a regular file", load_image("", "/dev/zero"));
  EXPECT_THROW(load_image("", "/proc/self/mem"), Error);
}

/// The pixels of load_image(), in the middle of a square of 1, 2, 3.
RgbImage padded(const RgbImage& image) {
  const int64_t side = std::max(image.width, image.height), left = (side - image.width) / 2,
                top = (side - image.height) / 2;
  RgbImage square{side, side, {}};
  for (int64_t y = 0; y < side; ++y) {
    for (int64_t x = 0; x < side; ++x) {
      const bool inside = x >= left && x < left + image.width && y >= top && y < top + image.height;
      for (uint8_t c = 0; c < 3; ++c) {
        square.rgb_hwc.push_back(
            inside
                ? image.rgb_hwc[static_cast<size_t>(3 * ((y - top) * image.width + x - left) + c)]
                : static_cast<uint8_t>(c + 1));
      }
    }
  }
  return square;
}

TEST(Image, IsDecodedIntoASquare) {
  int not_square = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kImages)) {
    if (entry.path().extension() == ".txt") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const std::string bytes = read_file(entry.path().string());
    const RgbImage plain = decode_image(bytes, "x"),
                   square = decode_square(bytes, read_image_header(bytes, "x"), "x", {1, 2, 3});
    not_square += plain.width != plain.height;
    EXPECT_EQ(square.width, std::max(plain.width, plain.height));
    EXPECT_EQ(square.height, square.width);
    EXPECT_EQ(hex(square.rgb_hwc), hex(padded(plain).rgb_hwc));
  }
  EXPECT_GE(not_square, 40);
}

TEST(Image, WhatADecoderHoldsBesideThePixelsIsInTheHeader) {
  const auto header = [](const std::string& name) {
    return read_image_header(read_file(kImages + name), name);
  };
  EXPECT_EQ(header("exif1.jpg").decoder_bytes, 0);
  const ImageHeader progressive = header("progressive.jpg");
  // Three components in whole blocks of 8 x 8, two bytes per coefficient; at most two are halved.
  const int64_t blocks = ((progressive.width + 7) / 8) * ((progressive.height + 7) / 8);
  EXPECT_GE(progressive.decoder_bytes, 128 * blocks * 3 / 2);
  EXPECT_LE(progressive.decoder_bytes, 128 * (blocks + progressive.width + progressive.height) * 3);
  const ImageHeader grey = header("depth16_colour0.png");
  EXPECT_TRUE(grey.deep_grey);
  EXPECT_EQ(grey.decoder_bytes, 2 * grey.width * grey.height);
  EXPECT_FALSE(header("depth16_colour2.png").deep_grey);
  EXPECT_FALSE(header("depth8_colour0.png").deep_grey);
  EXPECT_TRUE(header("deep_grey.tif").deep_grey);
  EXPECT_FALSE(header("grey.tif").deep_grey);
}

}  // namespace
}  // namespace lft::image_test
