// The header of an image file: its kind, size and orientation, whose limits are checked before
// anything is decoded.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lft::io {

/// The treatment of transparency: dropped, as in transformers' processors, or composited on white,
/// like PIL's paste() with the alpha channel as mask.
enum class Alpha { kDrop, kWhite };
struct ImageLimits {
  int64_t max_side = 65535, max_pixels = 64'000'000;
  uint64_t max_bytes = 256u << 20;
  bool follow_symlinks = false;  // a symlink below the image root may point outside
  Alpha alpha = Alpha::kDrop;
};
struct ImageHeader {
  std::string kind;               // png, jpeg, webp, bmp, tiff, gif, pnm, avif, heic
  int64_t width = 0, height = 0;  // as stored, before EXIF rotation
  int orientation = 1;            // EXIF 1..8
  bool animated = false;          // a WebP of several frames, of which the first is decoded
  bool transparent = false;       // an alpha channel or a transparent colour that PIL reads
  int64_t decoder_bytes = 0;      // memory of its decoder in addition to the pixels as 8-bit RGB
  bool deep_grey = false;         // 16-bit grey, whose values above 255 become white
};
/// The kind is detected from the first bytes, never from the name. Throws kInput: not an image,
/// unsupported kind, over a limit.
ImageHeader read_image_header(std::string_view bytes, const std::string& where,
                              const ImageLimits& limits = {});
/// An image file of which only the beginning is in memory. `read` returns the bytes at an offset,
/// fewer at the end of the file; they are valid until the next call.
struct ImageBytes {
  std::string_view head;
  uint64_t size = 0;
  std::function<std::string_view(uint64_t at, uint64_t bytes)> read;
};
/// The same for such a file. The chunks of a PNG or WebP, which may follow the pixels, are read one
/// by one; kInput if the header of another kind does not end in `head`.
ImageHeader read_image_header(const ImageBytes& file, const std::string& where,
                              const ImageLimits& limits = {});
}  // namespace lft::io
