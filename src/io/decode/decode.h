// One decoder per library: input is the file's bytes, output RGB rows as stored (before EXIF
// rotation). The caller has read the header and checked its limits.
#pragma once
#include <string>

#include "src/io/decode/image_decode.h"

namespace lft::io {

/// Each throws kInput for a truncated or damaged file. libpng's CRC errors and libjpeg's warnings
/// count as damage, except those for bytes between the parts of a file whose picture is complete.
/// `room` is the minimum size of the result in bytes, which begins with the pixels.
RgbImage decode_jpeg(std::string_view bytes, const std::string& where, size_t room);
/// The size, with the errors of decode_jpeg(). Reads every byte, but computes an eighth of the
/// pixels.
ImageCheck check_jpeg(std::string_view bytes, const std::string& where);
/// A file of quality 85.
std::string encode_jpeg(const RgbImage& image);
RgbImage decode_png(std::string_view bytes, const ImageHeader& header, const std::string& where,
                    size_t room, Alpha alpha);
RgbImage decode_bmp(std::string_view bytes, const ImageHeader& header, const std::string& where,
                    size_t room, Alpha alpha);
/// PBM, PGM and PPM, binary or as text.
RgbImage decode_pnm(std::string_view bytes, const ImageHeader& header, const std::string& where,
                    size_t room);
/// Decodes the first frame.
RgbImage decode_gif(std::string_view bytes, const ImageHeader& header, const std::string& where,
                    size_t room, Alpha alpha);
/// Decodes the first frame.
RgbImage decode_animated_webp(std::string_view bytes, const ImageHeader& header,
                              const std::string& where, size_t room, Alpha alpha);
/// Decodes the first page.
RgbImage decode_tiff(std::string_view bytes, const ImageHeader& header, const std::string& where,
                     size_t room, Alpha alpha);
/// AVIF (the first image of a sequence) and HEIC.
RgbImage decode_avif(std::string_view bytes, const ImageHeader& header, const std::string& where,
                     size_t room, Alpha alpha);
RgbImage decode_heif(std::string_view bytes, const ImageHeader& header, const std::string& where,
                     size_t room, Alpha alpha);
/// Loads opencv_module.cpp. Throws kUsage if that module is missing.
void load_opencv();
/// A WebP without animation, by opencv_module.cpp. The same error.
RgbImage decode_with_opencv(std::string_view bytes, const ImageHeader& header,
                            const std::string& where, size_t room, Alpha alpha);

/// A channel's value composited on white, like PIL's paste() with the alpha channel as mask.
inline uint8_t on_white(uint8_t value, uint8_t alpha) {
  const int mixed = value * alpha + 255 * (255 - alpha) + 128;
  return static_cast<uint8_t>(((mixed >> 8) + mixed) >> 8);
}

/// `count` pixels of 3 or 4 8-bit channels as RGB; `mixes`: composites on white by the fourth.
inline uint8_t* pixels_to_rgb(const uint8_t* pixel, size_t channels, size_t count, bool mixes,
                              uint8_t* rgb) {
  for (size_t i = 0; i < count; ++i, pixel += channels, rgb += 3) {
    for (size_t c = 0; c < 3; ++c) rgb[c] = mixes ? on_white(pixel[c], pixel[3]) : pixel[c];
  }
  return rgb;
}

/// Names of the libraries with the versions compiled against.
std::string jpeg_library();
std::string png_library();
std::string webp_library();
std::string tiff_library();
std::string avif_library();
std::string heif_library();
std::string opencv_library();

}  // namespace lft::io
