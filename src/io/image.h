// An image file as PIL's convert("RGB") after EXIF rotation would give it. The header is read and
// bounded before anything is decoded.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/file_handle.h"
#include "src/io/pages.h"

namespace lft::io {

/// What becomes of transparency: dropped, as transformers' processors do, or composited on white,
/// as PIL's paste() with the alpha channel as mask.
enum class Alpha { kDrop, kWhite };
struct ImageLimits {
  int64_t max_side = 65535, max_pixels = 64'000'000;
  uint64_t max_bytes = 256u << 20;
  bool follow_symlinks = false;  // a link below the image root may lead out of it
  Alpha alpha = Alpha::kDrop;
};
struct ImageHeader {
  std::string kind;               // png, jpeg, webp, bmp, tiff, gif, pnm, avif, heic
  int64_t width = 0, height = 0;  // as stored, before EXIF rotation
  int orientation = 1;            // EXIF 1..8
  bool animated = false;          // a WebP of several frames, of which the first is read
  bool transparent = false;       // an alpha channel or a transparent colour, where PIL has one
  int64_t beside = 0;             // bytes that its decoder holds beside the pixels as 8-bit RGB
  bool deep_grey = false;         // 16 bits of grey, of which what is above 255 becomes white
};
struct ImageSize {
  int64_t width = 0, height = 0;
};
struct ImageCheck {
  ImageSize size;
  /// What libjpeg says of damage that a restart marker ends: PIL and lft read such a JPEG, with
  /// wrong pixels up to the marker. Else empty.
  std::string damage;
};
using Pixels = std::vector<uint8_t, PageAllocator<uint8_t>>;
struct RgbImage {
  int64_t width = 0, height = 0;
  Pixels rgb_hwc;
};

/// From magic bytes, never from the name. Throws kInput: not an image, unsupported kind, over a
/// limit.
ImageHeader read_image_header(std::string_view bytes, const std::string& where,
                              const ImageLimits& limits = {});
/// An image file of which only the beginning is in memory. `read` gives the bytes at an offset,
/// fewer at the end of the file, until it is called again.
struct ImageBytes {
  std::string_view head;
  uint64_t size = 0;
  std::function<std::string_view(uint64_t at, uint64_t bytes)> read;
};
/// The same. The chunks of a PNG, which may follow the pixels, are read one by one; kInput where
/// the header of another kind does not end in `head`.
ImageHeader read_image_header(const ImageBytes& file, const std::string& where,
                              const ImageLimits& limits = {});
/// Throws kInput for a cut or damaged file (decoder warnings count but for ImageCheck::damage).
/// Built without OpenCV: kUsage, naming `lft prepare`.
RgbImage decode_image(std::string_view bytes, const std::string& where,
                      const ImageLimits& limits = {});
/// The same in the middle of a square of its longer side, the rest `background`: what LLaVA's
/// expand2square makes. It takes no more memory than the square and header.beside.
RgbImage decode_square(std::string_view bytes, const std::string& where,
                       const std::array<uint8_t, 3>& background, const ImageLimits& limits = {});
/// Throws where decode_image throws, with the same error; else the size it would give, and damage
/// that it would read past. Faster: a JPEG's bytes are all read, its pixels not all made.
ImageCheck check_image(std::string_view bytes, const std::string& where,
                       const ImageLimits& limits = {});
/// `name` under `root`, resolved; it need not exist. kInput for a URL, for no file name, and
/// outside `root` (a symlink out counts, unless they are followed).
std::string image_path(const std::string& root, const std::string& name,
                       bool follow_symlinks = false);
/// image_path(root, name), opened: in one call of the system where no link leads elsewhere. `root`
/// empty: `name` as it is.
FileHandle open_image(const std::string& root, const std::string& name, bool follow_symlinks);
/// Reads image_path(root, name), a regular file, and decodes it.
RgbImage load_image(const std::string& root, const std::string& name,
                    const ImageLimits& limits = {});

/// "OpenCV 4.6.0, libjpeg 62, libpng 1.6.39, ..."; empty in a build without decoders.
std::string image_libraries();

}  // namespace lft::io
