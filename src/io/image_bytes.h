// Bounds-checked numbers from the bytes of an image file, and the orientation from its EXIF or XMP.
// Used only by the image readers.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lft::io {

/// The unsigned number of `size` (1..4) bytes at `at`; empty beyond the end.
std::optional<uint32_t> number_at(std::string_view bytes, uint64_t at, int size, bool big_endian);

/// Like substr(), but empty beyond the end.
inline std::string_view slice(std::string_view bytes, uint64_t at, uint64_t size) {
  return at < bytes.size() ? bytes.substr(at, size) : std::string_view();
}

/// The first number of an entry (BYTE, SHORT or LONG) in the first directory of a TIFF or EXIF
/// block.
std::optional<uint32_t> tiff_tag(std::string_view tiff, uint32_t tag);
/// The bytes of an entry of any type, if present; empty if some are missing.
std::optional<std::string_view> tiff_value(std::string_view tiff, uint32_t tag);
/// The end of the first directory; empty if its beginning is missing.
std::optional<uint64_t> tiff_directory_end(std::string_view tiff);
constexpr uint32_t kOrientationTag = 0x0112;

/// The byte of each channel in the 32 bits of a BMP's pixel, as in PIL; alpha is -1 if there is
/// none. known is false for bit fields that PIL refuses.
struct BmpFields {
  int red = 2, green = 1, blue = 0, alpha = -1;
  bool known = true;
};
BmpFields bmp_fields(std::string_view bmp);

/// The canvas of a GIF, and its first frame with its position. transparent: an index, or -1.
/// data_at: the offset of the frame's codes. Empty if the header is truncated or the file has no
/// frame.
struct GifFrame {
  int64_t canvas_width = 0, canvas_height = 0, left = 0, top = 0, width = 0, height = 0;
  bool is_interlaced = false;
  int transparent = -1;
  std::string_view palette;  // RGB by index: the frame's, or that of all frames
  uint64_t data_at = 0;
};
std::optional<GifFrame> gif_frame(std::string_view bytes);

/// The header of a PBM, PGM or PPM: its size, the maximum of a sample (1 for a bilevel one) and the
/// offset of the pixels. Empty if it is truncated or is not one that PIL reads.
struct PnmFields {
  bool is_text = false, is_bilevel = false;
  int64_t width = 0, height = 0, most = 1, samples = 1;
  uint64_t data_at = 0;
};
std::optional<PnmFields> pnm_fields(std::string_view bytes);
inline bool is_pnm_space(char each) { return each == ' ' || (each >= '\t' && each <= '\r'); }

/// Orientation 1..8 as in PIL's exif_transpose: the EXIF tag if present, otherwise the XMP
/// property, otherwise 1. Either may be empty. A tag of type BYTE, ASCII or UNDEFINED counts as
/// present without a value, and an EXIF block that is no TIFF hides the XMP.
int orientation_of(std::string_view exif, std::string_view xmp);
/// Decodes the text "Raw profile type exif" that ImageMagick and exiv2 write into a PNG: an EXIF
/// block in hex after three lines. Empty if it is not hex.
std::string decode_raw_profile(std::string_view text);
/// Inflates a zlib stream of a PNG's texts like PIL, including the valid part of a truncated one.
/// Empty if it is damaged or longer than 1 MiB.
std::optional<std::string> inflate_text(std::string_view stream);

}  // namespace lft::io
