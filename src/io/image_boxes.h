// The header of an AVIF or HEIC file: boxes of ISO/IEC 14496-12, items and their properties of
// ISO/IEC 23008-12.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace lft::io {

/// The primary image. The size of an AVIF is as stored, with the EXIF orientation for its
/// properties irot and imir; that of a HEIC is as shown, since libheif crops and rotates it.
struct BoxedImage {
  bool is_avif = false;  // otherwise HEIC
  int64_t width = 0, height = 0;
  int orientation = 1;
  bool has_alpha = false, has_exif = false, has_xmp = false;
};

/// Whether the file begins with the brands of such an image.
bool is_boxed_image(std::string_view bytes);
/// Empty if the boxes are truncated or contain no size of a primary image.
std::optional<BoxedImage> boxed_image(std::string_view bytes);

}  // namespace lft::io
