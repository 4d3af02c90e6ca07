#include "src/io/image_header.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/io/image_boxes.h"
#include "src/io/image_bytes.h"
#include "src/io/image_kinds.h"

namespace lft::io {
namespace {

using Bytes = std::string_view;

[[noreturn]] void bad_image(const std::string& where, const std::string& what,
                            const std::string& found, const std::string& expected = "",
                            const std::string& next = "") {
  refuse(ErrorKind::kInput, what, where, found, expected, next);
}

/// The number at `at`, or the error that the file is truncated.
uint32_t need(Bytes bytes, uint64_t at, int size, bool big, const std::string& where) {
  const auto value = number_at(bytes, at, size, big);
  if (!value)
    bad_image(where, "the image is cut",
              std::to_string(bytes.size()) + " bytes, and its header continues");
  return *value;
}

/// The PNG texts that may contain its orientation; the last one for each keyword, as in PIL.
struct PngTexts {
  std::optional<std::string> exif, raw_profile;
  std::string xmp;

  int orientation() const {
    if (exif) return orientation_of(*exif, xmp);
    return orientation_of(raw_profile ? decode_raw_profile(*raw_profile) : "", xmp);
  }
  /// Adds the data of a chunk with one of the keywords below.
  void add(const std::string& type, Bytes keyword, Bytes data) {
    std::string text(data);
    if (type == "zTXt") {
      if (data.empty() || data[0] != 0) return;  // PIL refuses other methods
      text = inflate_text(data.substr(1)).value_or("");
    } else if (type == "iTXt") {
      const std::optional<std::string> value = international(data);
      if (!value) return;
      text = *value;
    }
    if (keyword == kXmp) xmp = text;
    if (keyword == kRawProfile) raw_profile = text;
    if (keyword == kExif && type == "tEXt") exif = text;
  }

  static constexpr Bytes kXmp = "XML:com.adobe.xmp", kRawProfile = "Raw profile type exif",
                         kExif = "exif";

 private:
  /// An international text, compressed or not, after a language and a translated keyword.
  static std::optional<std::string> international(Bytes data) {
    const size_t language = data.find('\0', 2),
                 keyword = language == Bytes::npos ? language : data.find('\0', language + 1);
    if (keyword == Bytes::npos) return std::nullopt;
    const Bytes text = data.substr(keyword + 1);
    if (data[0] == 0) return std::string(text);
    return data[1] == 0 ? inflate_text(text) : std::nullopt;
  }
};

/// Visits the chunks as PIL does: up to IEND, or up to the second frame of an animation.
class PngChunks {
 public:
  explicit PngChunks(const ImageBytes& file) : file_(file) {}
  void read() {
    for (uint64_t at = 8;;) {
      const Bytes head = file_.read(at, 8);
      const auto length = number_at(head, 0, 4, true);
      if (head.size() < 8) return;
      const std::string type(head.substr(4));
      if (type == "IEND" || (type == "fcTL" && pixels_ && frames_ > 1)) return;
      add(type, at + 8, *length);
      at += uint64_t{12} + *length;
    }
  }
  int orientation() const { return texts_.orientation(); }
  bool has_transparent_colour() const { return transparent_; }

 private:
  void add(const std::string& type, uint64_t at, uint64_t length) {
    if (type == "IDAT") {
      if (!pixels_ && frames_ > 0 && !frame_) ++frames_;  // the first image is not a frame
      pixels_ = true;
    }
    frame_ |= type == "fcTL";
    if (type == "acTL") frames_ = number_at(file_.read(at, 4), 0, 4, true).value_or(0);
    transparent_ |= type == "tRNS" && !pixels_;
    if (type == "eXIf") texts_.exif = std::string("Exif\0\0", 6) + text(at, length);
    if (type != "tEXt" && type != "zTXt" && type != "iTXt") return;
    constexpr uint64_t kMostKeyword = 32;  // longer than the keywords that are used
    const std::string begin = text(at, std::min(length, kMostKeyword));
    const std::string keyword = begin.substr(0, begin.find('\0'));
    if (keyword != PngTexts::kXmp && keyword != PngTexts::kRawProfile && keyword != PngTexts::kExif)
      return;
    const uint64_t skipped = std::min<uint64_t>(keyword.size() + 1, length);
    texts_.add(type, keyword, file_.read(at + skipped, length - skipped));
  }
  std::string text(uint64_t at, uint64_t length) const {
    return std::string(file_.read(at, length));
  }

  const ImageBytes& file_;
  PngTexts texts_;
  uint64_t frames_ = 0;
  bool pixels_ = false, frame_ = false, transparent_ = false;
};

ImageHeader png_header(const ImageBytes& file, const std::string& where) {
  const Bytes bytes = file.head;
  if (slice(bytes, 12, 4) != "IHDR")
    bad_image(where, "damaged PNG", "no IHDR chunk at its beginning");
  ImageHeader header{.kind = "png",
                     .width = need(bytes, 16, 4, true, where),
                     .height = need(bytes, 20, 4, true, where)};
  const uint32_t depth = number_at(bytes, 24, 1, true).value_or(0),
                 colour = number_at(bytes, 25, 1, true).value_or(0);
  constexpr uint32_t kWithAlpha = 4;
  header.deep_grey = depth == 16 && colour == 0;
  if (header.deep_grey) header.decoder_bytes = 2;
  PngChunks chunks(file);
  chunks.read();
  header.orientation = chunks.orientation();
  header.transparent =
      !header.deep_grey && ((colour & kWithAlpha) != 0 || chunks.has_transparent_colour());
  return header;
}

/// libjpeg's memory for a file of several scans: the coefficients of the whole image, two bytes
/// each, in whole blocks. `frame` begins with the precision field of the SOF segment.
int64_t coefficient_bytes(Bytes frame, const ImageHeader& header) {
  const auto byte = [&](uint64_t at) {
    return static_cast<int64_t>(number_at(frame, at, 1, true).value_or(0));
  };
  const auto count = static_cast<uint64_t>(byte(5));
  int64_t most_across = 1, most_down = 1, bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    most_across = std::max(most_across, byte(7 + 3 * i) >> 4);
    most_down = std::max(most_down, byte(7 + 3 * i) & 15);
  }
  const auto up = [](int64_t value, int64_t to) { return (value + to - 1) / to; };
  for (uint64_t i = 0; i < count; ++i) {
    const int64_t across = byte(7 + 3 * i) >> 4, down = byte(7 + 3 * i) & 15;
    bytes +=
        128 * up(header.width, 8 * most_across) * across * up(header.height, 8 * most_down) * down;
  }
  return bytes;
}

bool is_frame_marker(uint32_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

ImageHeader jpeg_header(Bytes bytes, const std::string& where) {
  constexpr Bytes kExif("Exif\0\0", 6), kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  constexpr uint32_t kStartOfScan = 0xda, kEndOfImage = 0xd9, kApp1 = 0xe1;
  ImageHeader header{.kind = "jpeg", .width = 0, .height = 0};
  Bytes xmp, frame;
  std::string exif;
  bool many_scans = false;
  for (uint64_t at = 2;;) {
    while (need(bytes, at, 1, true, where) != 0xff) ++at;  // stray bytes
    while (need(bytes, at, 1, true, where) == 0xff) ++at;
    const uint32_t marker = need(bytes, at, 1, true, where);
    if (marker == 0) continue;   // also stray
    if (marker == kStartOfScan)  // a scan of some components, or one of a progressive file
      many_scans |= number_at(bytes, at + 3, 1, true) != number_at(frame, 5, 1, true);
    if (marker == kStartOfScan || marker == kEndOfImage) break;
    ++at;
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) continue;  // these have no length
    const uint32_t length = need(bytes, at, 2, true, where);
    const Bytes data = length >= 2 ? slice(bytes, at + 2, length - 2) : Bytes();
    if (is_frame_marker(marker)) {
      header.height = need(data, 1, 2, true, where);
      header.width = need(data, 3, 2, true, where);
      frame = data;
      many_scans = (marker & 3) == 2;
    }
    if (marker == kApp1 && data.starts_with(kExif))  // a long one continues in the next segment
      exif += data.substr(exif.empty() ? 0 : kExif.size());
    if (marker == kApp1 && data.starts_with(kXmp)) xmp = data.substr(kXmp.size());
    at += std::max(length, 2u);
  }
  if (many_scans) header.decoder_bytes = coefficient_bytes(frame, header);
  header.orientation = orientation_of(exif, xmp);
  return header;
}

/// Width and height from the first chunk, which is of one of three kinds.
void webp_size(Bytes bytes, const std::string& where, ImageHeader* header) {
  const Bytes type = slice(bytes, 12, 4);
  if (type == "VP8 ") {
    if (need(bytes, 23, 3, true, where) != 0x9d012a)
      bad_image(where, "damaged WebP", "no key frame");
    header->width = need(bytes, 26, 2, false, where) & 0x3fff;
    header->height = need(bytes, 28, 2, false, where) & 0x3fff;
  } else if (type == "VP8L") {
    if (need(bytes, 20, 1, false, where) != 0x2f)
      bad_image(where, "damaged WebP", "no lossless signature");
    const uint32_t bits = need(bytes, 21, 4, false, where);
    header->width = (bits & 0x3fff) + 1;
    header->height = ((bits >> 14) & 0x3fff) + 1;
  } else if (type == "VP8X") {
    constexpr uint32_t kAnimation = 0x02;
    header->animated = (need(bytes, 20, 1, false, where) & kAnimation) != 0;
    header->width = int64_t{need(bytes, 24, 3, false, where)} + 1;
    header->height = int64_t{need(bytes, 27, 3, false, where)} + 1;
  } else {
    bad_image(where, "damaged WebP", "chunk " + quote_text(type));
  }
}

ImageHeader webp_header(const ImageBytes& file, const std::string& where) {
  const Bytes bytes = file.head;
  ImageHeader header{.kind = "webp", .width = 0, .height = 0};
  const uint64_t claimed = 8 + uint64_t{need(bytes, 4, 4, false, where)};
  if (claimed > file.size)
    bad_image(where, "the image is cut", std::to_string(file.size) + " bytes",
              std::to_string(claimed) + " bytes");
  webp_size(bytes, where, &header);
  constexpr uint32_t kXmpFlag = 0x04, kExifFlag = 0x08, kAlphaFlag = 0x10, kAlphaBit = 1u << 28;
  const Bytes first = slice(bytes, 12, 4);
  const uint32_t flags = first == "VP8X" ? need(bytes, 20, 1, false, where) : 0;
  std::string exif, xmp;
  for (uint64_t at = 12; at + 8 <= claimed;) {
    const std::string chunk(file.read(at, 8));
    const uint64_t length = need(chunk, 4, 4, false, where);
    const Bytes type = slice(chunk, 0, 4);
    if (type == "EXIF" && exif.empty() && (flags & kExifFlag) != 0)
      exif = file.read(at + 8, length);
    if (type == "XMP " && xmp.empty() && (flags & kXmpFlag) != 0) xmp = file.read(at + 8, length);
    at += 8 + length + length % 2;
  }
  header.decoder_bytes = header.animated ? 12 : first == "VP8 " ? 3 : 8;
  header.transparent = (flags & kAlphaFlag) != 0 ||
                       (first == "VP8L" && (need(bytes, 21, 4, false, where) & kAlphaBit) != 0);
  header.orientation = orientation_of(exif, xmp);
  return header;
}

ImageHeader bmp_header(Bytes bytes, const std::string& where) {
  constexpr uint32_t kOldHeader = 12;
  ImageHeader header{.kind = "bmp", .width = 0, .height = 0};
  if (need(bytes, 14, 4, false, where) == kOldHeader) {
    header.width = need(bytes, 18, 2, false, where);
    header.height = need(bytes, 20, 2, false, where);
  } else {
    header.width = static_cast<int32_t>(need(bytes, 18, 4, false, where));
    const int64_t height = static_cast<int32_t>(need(bytes, 22, 4, false, where));
    header.height = height < 0 ? -height : height;  // negative: rows from the top down
  }
  const BmpFields fields = bmp_fields(bytes);
  header.transparent = fields.alpha >= 0;
  return header;
}

/// kInput if a directory entry or the XMP may be beyond the end of `file.head`.
ImageHeader tiff_header(const ImageBytes& file, const std::string& where) {
  constexpr uint32_t kWidth = 256, kHeight = 257, kBits = 258, kSamples = 277, kExtraSamples = 338,
                     kXmp = 700;
  const Bytes bytes = file.head;
  const auto width = tiff_tag(bytes, kWidth), height = tiff_tag(bytes, kHeight);
  if (!width || !height)
    bad_image(where, "damaged or cut TIFF", "no width and height in its first directory");
  const auto xmp = tiff_value(bytes, kXmp);
  if (file.size > bytes.size() &&
      (tiff_directory_end(bytes).value_or(file.size) > bytes.size() || (xmp && xmp->empty())))
    bad_image(where, "the image is cut", std::to_string(bytes.size()) + " bytes");
  const uint32_t bits = tiff_tag(bytes, kBits).value_or(1),
                 samples = tiff_tag(bytes, kSamples).value_or(1);
  constexpr uint32_t kMostSamples = 8;  // per pixel; a strip may contain the whole image
  return {
      .kind = "tiff",
      .width = *width,
      .height = *height,
      .orientation = orientation_of(bytes, xmp.value_or(Bytes())),
      .transparent = samples == 4 ? tiff_tag(bytes, kExtraSamples).value_or(2) != 0 : samples == 2,
      .decoder_bytes = std::max<int64_t>(4, std::min(samples, kMostSamples) * ((bits + 7) / 8)),
      .deep_grey = bits == 16 && samples == 1};
}

ImageHeader gif_header(Bytes bytes, const std::string& where) {
  const std::optional<GifFrame> frame = gif_frame(bytes);
  if (!frame) bad_image(where, "damaged gif image", "its header is cut, or no frame is in it");
  return {.kind = "gif",
          .width = frame->canvas_width,
          .height = frame->canvas_height,
          .transparent = frame->transparent >= 0,
          .decoder_bytes = 1};
}

/// The XMP orientation is used if there is no other, as in PIL.
ImageHeader boxed_header(const ImageBytes& file, const std::string& where) {
  std::optional<BoxedImage> image = boxed_image(file.head);
  if (!image) bad_image(where, "damaged AVIF or HEIC", "no size of an image in its header");
  if (image->is_avif && image->orientation == 1 && image->has_xmp && !image->has_exif) {
    if (file.size > file.head.size())
      bad_image(where, "the image is cut", std::to_string(file.head.size()) + " bytes");
    image->orientation = orientation_of("", file.head);
  }
  return {.kind = image->is_avif ? "avif" : "heic",
          .width = image->width,
          .height = image->height,
          .orientation = image->orientation,
          .transparent = image->has_alpha,
          .decoder_bytes = 10};
}

ImageHeader pnm_header(Bytes bytes, const std::string& where) {
  const std::optional<PnmFields> fields = pnm_fields(bytes);
  if (!fields) bad_image(where, "damaged pnm image", "no size, or no largest value, in its header");
  return {.kind = "pnm",
          .width = fields->width,
          .height = fields->height,
          .deep_grey = fields->samples == 1 && fields->most > 255};
}

/// decoder_bytes is per pixel except for a JPEG, since no size is checked yet.
ImageHeader any_header(const ImageBytes& file, const std::string& where) {
  const Bytes bytes = file.head;
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return png_header(file, where);
  if (bytes.starts_with("\xff\xd8\xff")) return jpeg_header(bytes, where);
  if (bytes.starts_with("RIFF") && slice(bytes, 8, 4) == "WEBP") return webp_header(file, where);
  if (bytes.starts_with("BM")) return bmp_header(bytes, where);
  if (bytes.starts_with(Bytes("II*\0", 4)) || bytes.starts_with(Bytes("MM\0*", 4)))
    return tiff_header(file, where);
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) return gif_header(bytes, where);
  if (bytes.size() > 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' &&
      is_pnm_space(bytes[2]))
    return pnm_header(bytes, where);
  if (is_boxed_image(bytes)) return boxed_header(file, where);
  refuse_unread_kind(bytes, where);
}

}  // namespace

ImageHeader read_image_header(std::string_view bytes, const std::string& where,
                              const ImageLimits& limits) {
  return read_image_header(
      {.head = bytes,
       .size = bytes.size(),
       .read = [bytes](uint64_t at, uint64_t size) { return slice(bytes, at, size); }},
      where, limits);
}

ImageHeader read_image_header(const ImageBytes& file, const std::string& where,
                              const ImageLimits& limits) {
  ImageHeader header = any_header(file, where);
  if (header.kind == "png" && header.transparent && limits.alpha == Alpha::kWhite)
    header.decoder_bytes = 4;
  const std::string size = std::to_string(header.width) + " x " + std::to_string(header.height);
  if (header.width < 1 || header.height < 1)
    bad_image(where, "damaged " + header.kind + " image", "a size of " + size);
  if (header.width > limits.max_side || header.height > limits.max_side) {
    bad_image(where, "image too large", size, "sides of at most " + std::to_string(limits.max_side),
              "scale the image down, or raise data.max_side in the recipe");
  }
  if (header.width > limits.max_pixels / header.height) {
    bad_image(where, "image too large", size,
              "at most " + std::to_string(limits.max_pixels) + " pixels",
              "scale the image down, or raise data.max_pixels in the recipe");
  }
  if (header.kind != "jpeg") header.decoder_bytes *= header.width * header.height;
  return header;
}

}  // namespace lft::io
