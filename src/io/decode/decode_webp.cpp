// The first frame of an animated WebP, composited on a transparent canvas as in PIL.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>

#include "src/io/decode/decode.h"

namespace lft::io {
namespace {

struct Delete {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
};

std::string version(int number) {
  return std::to_string(number >> 16) + "." + std::to_string(number >> 8 & 255) + "." +
         std::to_string(number & 255);
}

}  // namespace

std::string webp_library() { return "libwebp " + version(WebPGetDecoderVersion()); }

RgbImage decode_animated_webp(std::string_view bytes, const ImageHeader& header,
                              const std::string& where, size_t room, Alpha alpha) {
  WebPAnimDecoderOptions options;
  WebPAnimDecoderOptionsInit(&options);  // RGBA, not premultiplied, one thread
  const WebPData data{.bytes = reinterpret_cast<const uint8_t*>(bytes.data()),
                      .size = bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, Delete> decoder(WebPAnimDecoderNew(&data, &options));
  uint8_t* rgba = nullptr;
  int milliseconds = 0;
  if (decoder == nullptr || WebPAnimDecoderGetNext(decoder.get(), &rgba, &milliseconds) == 0)
    throw_damaged_image("webp", where, "its first frame cannot be decoded");
  const auto pixels = static_cast<size_t>(header.width * header.height);
  RgbImage image{header.width, header.height, Pixels(std::max(room, 3 * pixels))};
  const bool mixes = alpha == Alpha::kWhite && header.transparent;
  pixels_to_rgb(rgba, 4, pixels, mixes, image.rgb_hwc.data());
  return image;
}

}  // namespace lft::io
