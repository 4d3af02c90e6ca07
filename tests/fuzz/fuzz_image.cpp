#include "src/io/decode/image_decode.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::io;
namespace {

/// The displayed error; empty if there is none.
template <typename Body>
std::string refusal(Body body) {
  std::string shown;
  reads(ErrorKind::kInput, [&] {
    try {
      body();
    } catch (const Error& error) {
      shown = format_error(error);
      throw;
    }
  });
  return shown;
}

}  // namespace

bool image(std::string_view bytes) {
  constexpr ImageLimits kLimits{.max_side = 1024, .max_pixels = 1 << 16};
  const std::string file(bytes);
  ImageHeader header;
  if (!reads(ErrorKind::kInput, [&] { header = read_image_header(file, "x.png", kLimits); }))
    return false;
  expect(
      header.width > 0 && header.height > 0 && header.width * header.height <= kLimits.max_pixels,
      "the limit of pixels");
  if (image_libraries().empty()) return true;
  RgbImage pixels;
  ImageCheck size;
  const std::string decodes = refusal([&] { pixels = decode_image(file, "x.png", kLimits); });
  const std::string checks = refusal([&] { size = check_image(file, "x.png", kLimits); });
  expect(decodes == checks,
         "check_image refuses as decode_image does: " + decodes + "and " + checks);
  if (!decodes.empty()) return false;
  expect(size.width == pixels.width && size.height == pixels.height,
         "check_image gives the size of decode_image");
  expect(pixels.rgb_hwc.size() == static_cast<size_t>(3 * size.width * size.height),
         "three bytes a pixel");
  expect(size.width * size.height == header.width * header.height,
         "as many pixels as the header says");
  return true;
}

}  // namespace lft::fuzz
