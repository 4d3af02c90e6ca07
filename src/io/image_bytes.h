// Bounds-checked numbers from an image file's bytes, and what EXIF or XMP in it say of the
// orientation. Used by the image readers alone.
#pragma once
#include <cstdint>
#include <optional>
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
/// Orientation 1..8 as PIL's exif_transpose sees it: the EXIF tag where it is present, else the XMP
/// property, else 1. Either may be empty.
int orientation_of(std::string_view exif, std::string_view xmp);

}  // namespace lft::io
