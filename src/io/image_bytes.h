// Bounds-checked numbers from an image file's bytes, and what EXIF or XMP in it say of the
// orientation. Used by the image readers alone.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lft::io {

/// The unsigned number of `size` (1..4) bytes at `at`; nothing when it lies after the end.
std::optional<uint32_t> number_at(std::string_view bytes, uint64_t at, int size, bool big_endian);

/// As substr, but what lies after the end is empty.
inline std::string_view slice(std::string_view bytes, uint64_t at, uint64_t size) {
  return at < bytes.size() ? bytes.substr(at, size) : std::string_view();
}

/// The first number of an entry (BYTE, SHORT or LONG) in the first directory of a TIFF or EXIF
/// block.
std::optional<uint32_t> tiff_tag(std::string_view tiff, uint32_t tag);
/// The bytes of an entry of any type, where there is one; empty where they are not all there.
std::optional<std::string_view> tiff_value(std::string_view tiff, uint32_t tag);
/// Where the first directory ends; nothing where its beginning is not there.
std::optional<uint64_t> tiff_directory_end(std::string_view tiff);
constexpr uint32_t kOrientationTag = 0x0112;

/// What PIL sees in the 32 bits of a BMP's pixel: the byte of each channel; alpha -1 where it has
/// none. known false: bit fields that PIL refuses.
struct BmpFields {
  int red = 2, green = 1, blue = 0, alpha = -1;
  bool known = true;
};
BmpFields bmp_fields(std::string_view bmp);

/// The canvas of a GIF, and its first frame with its place in it. transparent: an index, or -1.
/// data_at: of the frame's codes. Nothing where the header is cut, or no frame is in the file.
struct GifFrame {
  int64_t canvas_width = 0, canvas_height = 0, left = 0, top = 0, width = 0, height = 0;
  bool is_interlaced = false;
  int transparent = -1;
  std::string_view palette;  // RGB by index: the frame's, or that of all frames
  uint64_t data_at = 0;
};
std::optional<GifFrame> gif_frame(std::string_view bytes);

/// The header of a PBM, PGM or PPM: its size, the largest value of a sample (1 of a bilevel one)
/// and where the pixels begin. Nothing where it is cut or is not one that PIL reads.
struct PnmFields {
  bool is_text = false, is_bilevel = false;
  int64_t width = 0, height = 0, most = 1, samples = 1;
  uint64_t data_at = 0;
};
std::optional<PnmFields> pnm_fields(std::string_view bytes);
inline bool is_pnm_space(char each) { return each == ' ' || (each >= '\t' && each <= '\r'); }

/// Orientation 1..8 as PIL's exif_transpose sees it: the EXIF tag where it is present, else the XMP
/// property, else 1. Either may be empty. A tag of type BYTE, ASCII or UNDEFINED is present and
/// says nothing, and an EXIF block that is no TIFF hides the XMP.
int orientation_of(std::string_view exif, std::string_view xmp);
/// What ImageMagick and exiv2 write into a PNG's text "Raw profile type exif": an EXIF block in hex
/// after three lines. Empty where it is not hex.
std::string decode_raw_profile(std::string_view text);
/// A zlib stream, as PIL reads it from a PNG's texts: what is there of a cut one. Nothing where it
/// is damaged or longer than 1 MiB.
std::optional<std::string> inflate_text(std::string_view stream);

}  // namespace lft::io
