#include "src/io/image_kinds.h"

#include <algorithm>
#include <array>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/io/image_bytes.h"

namespace lft::io {
namespace {

using Bytes = std::string_view;

struct Signature {
  uint64_t at;
  Bytes bytes;
  const char* name;
};
constexpr std::array kSignatures = {
    Signature{0, {"\0\0\0\x0cjP  ", 8}, "a JPEG 2000"},
    Signature{0, "\xff\x4f\xff\x51", "a JPEG 2000"},
    Signature{0, {"\0\0\0\x0cJXL ", 8}, "a JPEG XL"},
    Signature{0, "\xff\x0a", "a JPEG XL"},
    Signature{4, "ftyp", "a video"},
    Signature{8, "AVI ", "a video"},
    Signature{0, "\x1a\x45\xdf\xa3", "a video"},
    Signature{0, "II+", "a BigTIFF"},
    Signature{0, {"MM\0+", 4}, "a BigTIFF"},
    Signature{0, {"\0\0\1\0", 4}, "an icon (ICO)"},
    Signature{0, {"\0\0\2\0", 4}, "a cursor (CUR)"},
    Signature{0, "icns", "an icon (ICNS)"},
    Signature{0, "8BPS", "a Photoshop file (PSD)"},
    Signature{0, "DDS ", "a DDS texture"},
    Signature{0, "qoif", "a QOI"},
    Signature{0, "\x01\xda", "an SGI image"},
    Signature{0, "\x59\xa6\x6a\x95", "a Sun raster"},
    Signature{0, "\x76\x2f\x31\x01", "an OpenEXR"},
    Signature{0, "#?RADIANCE", "a Radiance HDR"},
    Signature{0, "farbfeld", "a farbfeld"},
    Signature{0, "BPG\xfb", "a BPG"},
    Signature{0, "SIMPLE  =", "a FITS"},
    Signature{0, "P7", "a PAM"},
    Signature{0, "Pf", "a PFM"},
    Signature{0, "PF", "a PFM"},
    Signature{0, "/* XPM */", "an XPM"},
    Signature{0, "#define ", "an XBM"},
    Signature{0, {"\x0a\x05\x01", 3}, "a PCX"},
    Signature{0, {"\x0a\x03\x01", 3}, "a PCX"},
    Signature{0, {"\x0a\x02\x01", 3}, "a PCX"},
    Signature{0, "\xd7\xcd\xc6\x9a", "a WMF"},
    Signature{0, "%PDF", "a PDF"},
    Signature{0, "%!PS", "a PostScript file"},
    Signature{0, "PK\x03\x04", "a zip archive"},
    Signature{0, "\x1f\x8b", "a gzip file"},
    Signature{0, "PAR1", "a Parquet file"},
};

/// A TGA file may have its signature at its end.
bool is_tga(Bytes bytes) {
  constexpr Bytes kFooter("TRUEVISION-XFILE.\0", 18);
  return bytes.ends_with(kFooter);
}

}  // namespace

void refuse_unread_kind(std::string_view bytes, const std::string& where) {
  const std::string read = "PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF, HEIC or PPM";
  const auto refused = [&](const std::string& what, const std::string& found,
                           const std::string& next) {
    refuse(ErrorKind::kInput, what, where, found, read, next);
  };
  if (bytes.empty()) refused("not an image", "an empty file", "");
  if (bytes.starts_with("version https://git-lfs"))
    refused("not an image", "a Git LFS pointer", "fetch the files (git lfs pull)");
  const size_t text = std::min(bytes.find_first_not_of(" \t\r\n"), bytes.size());
  if (slice(bytes, text, 1) == "<")
    refused("not an image", "a web page or XML", "download the file again");
  const auto kind = std::ranges::find_if(kSignatures, [&](const Signature& each) {
    return slice(bytes, each.at, each.bytes.size()) == each.bytes;
  });
  const char* name = is_tga(bytes) ? "a TGA" : kind != kSignatures.end() ? kind->name : nullptr;
  if (name != nullptr) refused("unsupported image", name, "convert it, for example to PNG");
  refuse(ErrorKind::kInput, "not an image", where,
         "it begins with " + quote_text(bytes.substr(0, 12)), read, {});
}

}  // namespace lft::io
