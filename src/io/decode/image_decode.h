// Decodes image files to the pixels of PIL's convert("RGB") after EXIF rotation. The header is read
// and bounded before anything is decoded. Also writes JPEG files, with the same library.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/io/image.h"
#include "src/io/image_header.h"

namespace lft::io {

struct ImageCheck {
  int64_t width = 0, height = 0;  // size of decode_image()'s result
  /// libjpeg's message for damage that a restart marker limits, otherwise empty: PIL and lft read
  /// such a JPEG, with wrong pixels up to the marker.
  std::string damage;
};

/// Throws kInput for a cut or damaged file (decoder warnings count except ImageCheck::damage).
/// Built without OpenCV: kUsage, naming `lft prepare`. `header` is that of the same bytes.
RgbImage decode_image(std::string_view bytes, const ImageHeader& header, const std::string& where,
                      Alpha alpha = Alpha::kDrop);
RgbImage decode_image(std::string_view bytes, const std::string& where,
                      const ImageLimits& limits = {});
/// The same image centred in a square of its longer side, filled with `background`, like LLaVA's
/// expand2square. It needs no more memory than the square and header.decoder_bytes.
RgbImage decode_square(std::string_view bytes, const ImageHeader& header, const std::string& where,
                       const std::array<uint8_t, 3>& background, Alpha alpha = Alpha::kDrop);
/// Throws the errors of decode_image(); otherwise returns the size and any tolerated damage. Faster
/// for a JPEG: all bytes are read, but not all pixels are computed.
ImageCheck check_image(std::string_view bytes, const std::string& where,
                       const ImageLimits& limits = {});
/// Loads the library that decode_image() needs for this image, if it is not part of the program, so
/// that a run does not count its 10 MB as memory of its steps. Errors are decode_image()'s.
void load_decoder(const ImageHeader& header);
/// A JPEG file of quality 85, for pages. The same error in a build without OpenCV.
std::string jpeg_file(const RgbImage& image);
/// "OpenCV 4.6.0, libjpeg 62, libpng 1.6.39, ..."; empty in a build without decoders.
std::string image_libraries();

/// Throws kInput. The decoders call it.
[[noreturn]] void throw_damaged_image(const std::string& kind, const std::string& where,
                                      const std::string& reason);

}  // namespace lft::io
