// AVIF with PIL's conversion to RGB by libavif; the first image of a sequence.
#include <avif/avif.h>

#include <algorithm>
#include <memory>

#include "src/io/decode/decode.h"

namespace lft::io {
namespace {

struct Destroy {
  void operator()(avifDecoder* decoder) const { avifDecoderDestroy(decoder); }
};

}  // namespace

std::string avif_library() { return std::string("libavif ") + avifVersion(); }

RgbImage decode_avif(std::string_view bytes, const ImageHeader& header, const std::string& where,
                     size_t room, Alpha alpha) {
  const std::unique_ptr<avifDecoder, Destroy> decoder(avifDecoderCreate());
  decoder->strictFlags = AVIF_STRICT_DISABLED;  // as in PIL: many files have no pixi property
  const auto require = [&](avifResult result) {
    if (result != AVIF_RESULT_OK) throw_damaged_image("avif", where, avifResultToString(result));
  };
  require(avifDecoderSetIOMemory(decoder.get(), reinterpret_cast<const uint8_t*>(bytes.data()),
                                 bytes.size()));
  require(avifDecoderParse(decoder.get()));
  RgbImage image{decoder->image->width, decoder->image->height, {}};
  if (image.width != header.width || image.height != header.height) return image;
  require(avifDecoderNextImage(decoder.get()));
  avifRGBImage rgb;
  avifRGBImageSetDefaults(&rgb, decoder->image);
  rgb.depth = 8;
  const bool mixes = decoder->alphaPresent != 0 && alpha == Alpha::kWhite;
  const size_t channels = decoder->alphaPresent != 0 ? 4 : 3;
  rgb.format = channels == 4 ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
  const auto pixels = static_cast<size_t>(image.width * image.height);
  Pixels rows(channels * pixels);
  rgb.pixels = rows.data();
  rgb.rowBytes = static_cast<uint32_t>(channels * static_cast<size_t>(image.width));
  require(avifImageYUVToRGB(decoder->image, &rgb));
  image.rgb_hwc.resize(std::max(room, 3 * pixels));
  pixels_to_rgb(rows.data(), channels, pixels, mixes, image.rgb_hwc.data());
  return image;
}

}  // namespace lft::io
