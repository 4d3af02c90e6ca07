#include "src/io/image_bytes.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>

namespace lft::io {
namespace {

enum TiffType : uint32_t {
  kByte = 1,
  kAscii = 2,
  kShort = 3,
  kLong = 4,
  kRational = 5,
  kUndefined = 7,
  kSignedRational = 10,
  kFloat = 11,
  kDouble = 12,
};
/// The size in bytes of a value of each type, 0 for types that PIL ignores.
constexpr std::array<uint32_t, 17> kTypeBytes = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};

int xmp_orientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at + 1)) {
    std::string_view rest = xmp.substr(at + kName.size());
    const size_t skipped = rest.substr(0, 2) == "=\"" ? 2 : rest.substr(0, 1) == ">" ? 1 : 0;
    if (skipped > 0 && rest.size() > skipped && rest[skipped] >= '0' && rest[skipped] <= '9')
      return rest[skipped] - '0';
  }
  return 1;
}

bool is_big_endian(std::string_view tiff) { return tiff.starts_with("MM"); }

struct TiffEntry {
  uint32_t type = 0, value_bytes = 0;
  std::string_view values;  // all of them, or empty if any is missing
};

/// The first entry with this tag whose type PIL reads.
std::optional<TiffEntry> find_entry(std::string_view tiff, uint32_t tag) {
  const bool big = is_big_endian(tiff);
  if (!big && !tiff.starts_with("II")) return std::nullopt;
  const auto first = number_at(tiff, 4, 4, big);
  const uint64_t directory = first.value_or(0);
  const uint32_t entries = first ? number_at(tiff, directory, 2, big).value_or(0) : 0;
  for (uint32_t i = 0; i < entries; ++i) {
    const uint64_t at = directory + 2 + 12ull * i;
    const auto name = number_at(tiff, at, 2, big), type = number_at(tiff, at + 2, 2, big),
               count = number_at(tiff, at + 4, 4, big), offset = number_at(tiff, at + 8, 4, big);
    if (!name || !type || !count || !offset) return std::nullopt;
    if (*name != tag || *type >= kTypeBytes.size()) continue;
    TiffEntry entry{.type = *type, .value_bytes = kTypeBytes[*type], .values = {}};
    const uint64_t bytes = uint64_t{entry.value_bytes} * *count;
    if (bytes == 0) continue;
    entry.values = slice(tiff, bytes <= 4 ? at + 8 : *offset, bytes);
    if (entry.values.size() < bytes) entry.values = {};
    return entry;
  }
  return std::nullopt;
}

/// The number that PIL compares with 1 to 8; 0 for bytes or text.
double first_number(const TiffEntry& entry, bool big) {
  const auto part = [&](uint64_t at, int size) {
    return number_at(entry.values, at, size, big).value_or(0);
  };
  const uint32_t low = big ? 4 : 0;  // position of the lower half of eight bytes
  switch (entry.type) {
    case kByte:
    case kAscii:
    case kUndefined:
      return 0;
    case kRational:
      return static_cast<double>(part(0, 4)) / part(4, 4);
    case kSignedRational:
      return static_cast<double>(static_cast<int32_t>(part(0, 4))) /
             static_cast<int32_t>(part(4, 4));
    case kFloat:
      return std::bit_cast<float>(part(0, 4));
    case kDouble:
      return std::bit_cast<double>(uint64_t{part(4 - low, 4)} << 32 | part(low, 4));
    default:  // integers: a negative one is above 8 here
      return entry.value_bytes == 8 && part(4 - low, 4) != 0
                 ? 0
                 : part(entry.value_bytes == 8 ? low : 0,
                        static_cast<int>(std::min(entry.value_bytes, 4u)));
  }
}

bool is_tiff(std::string_view bytes) {
  constexpr std::array<std::string_view, 4> kBegin = {
      std::string_view("MM\0*", 4), std::string_view("II*\0", 4), std::string_view("MM*\0", 4),
      std::string_view("II\0*", 4)};
  return std::ranges::find(kBegin, bytes.substr(0, 4)) != kBegin.end();
}

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

}  // namespace

std::optional<uint32_t> number_at(std::string_view bytes, uint64_t at, int size, bool big_endian) {
  if (at > bytes.size() || bytes.size() - at < static_cast<uint64_t>(size)) return std::nullopt;
  uint32_t value = 0;
  for (int i = 0; i < size; ++i) {
    const uint64_t from = at + static_cast<uint64_t>(big_endian ? i : size - 1 - i);
    value = (value << 8) | static_cast<unsigned char>(bytes[from]);
  }
  return value;
}

std::optional<uint32_t> tiff_tag(std::string_view tiff, uint32_t tag) {
  const std::optional<TiffEntry> entry = find_entry(tiff, tag);
  if (!entry || (entry->type != kByte && entry->type != kShort && entry->type != kLong))
    return std::nullopt;
  return number_at(entry->values, 0, static_cast<int>(entry->value_bytes), is_big_endian(tiff));
}

std::optional<std::string_view> tiff_value(std::string_view tiff, uint32_t tag) {
  const std::optional<TiffEntry> entry = find_entry(tiff, tag);
  return entry ? std::optional(entry->values) : std::nullopt;
}

std::optional<uint64_t> tiff_directory_end(std::string_view tiff) {
  const bool big = is_big_endian(tiff);
  const auto first = number_at(tiff, 4, 4, big);
  const auto entries = first ? number_at(tiff, *first, 2, big) : std::nullopt;
  if (!entries) return std::nullopt;
  return uint64_t{*first} + 2 + 12ull * *entries;
}

BmpFields bmp_fields(std::string_view bmp) {
  constexpr uint32_t kBitFields = 3, kFirstWithAlpha = 56;
  const auto number = [&](uint64_t at) { return number_at(bmp, at, 4, false).value_or(0); };
  if (number_at(bmp, 28, 2, false) != 32U || number(30) != kBitFields || number(14) < 40) return {};
  struct Masks {
    uint32_t red, green, blue, alpha;
    bool operator==(const Masks&) const = default;
  };
  const Masks masks{number(54), number(58), number(62),
                    number(14) >= kFirstWithAlpha ? number(66) : 0};
  constexpr uint32_t kByte0 = 0xff, kByte1 = 0xff00, kByte2 = 0xff0000, kByte3 = 0xff000000;
  if (masks == Masks{kByte2, kByte1, kByte0, 0}) return {};
  if (masks == Masks{kByte3, kByte2, kByte1, 0}) return {.red = 3, .green = 2, .blue = 1};
  if (masks == Masks{kByte3, kByte1, kByte0, 0}) return {.red = 3, .green = 1, .blue = 0};
  if (masks == Masks{kByte3, kByte2, kByte1, kByte0})
    return {.red = 3, .green = 2, .blue = 1, .alpha = 0};
  if (masks == Masks{kByte0, kByte1, kByte2, kByte3})
    return {.red = 0, .green = 1, .blue = 2, .alpha = 3};
  if (masks == Masks{kByte3, kByte1, kByte0, kByte2})
    return {.red = 3, .green = 1, .blue = 0, .alpha = 2};
  if (masks == Masks{kByte2, kByte1, kByte0, kByte3} || masks == Masks{}) return {.alpha = 3};
  return {.known = false};
}

std::optional<GifFrame> gif_frame(std::string_view bytes) {
  constexpr uint32_t kExtension = '!', kFrame = ',', kControl = 0xf9, kHasPalette = 0x80,
                     kInterlaced = 0x40, kHasTransparent = 1;
  const auto byte = [&](uint64_t at) { return number_at(bytes, at, 1, false).value_or(0); };
  const auto pair = [&](uint64_t at) {
    return static_cast<int64_t>(number_at(bytes, at, 2, false).value_or(0));
  };
  uint64_t at = 13;
  GifFrame frame;
  frame.canvas_width = pair(6);
  frame.canvas_height = pair(8);
  const auto read_palette = [&](uint32_t flags) {
    if ((flags & kHasPalette) == 0) return;
    frame.palette = slice(bytes, at, uint64_t{6} << (flags & 7));
    at += uint64_t{6} << (flags & 7);
  };
  read_palette(byte(10));
  while (byte(at) == kExtension) {
    const uint32_t label = byte(at + 1);
    at += 2;
    if (label == kControl && byte(at) >= 4 && (byte(at + 1) & kHasTransparent) != 0)
      frame.transparent = static_cast<int>(byte(at + 4));
    for (; byte(at) != 0; at += 1 + byte(at)) {
    }
    ++at;
  }
  if (byte(at) != kFrame || bytes.size() < at + 11) return std::nullopt;
  frame.left = pair(at + 1);
  frame.top = pair(at + 3);
  frame.width = pair(at + 5);
  frame.height = pair(at + 7);
  const uint32_t flags = byte(at + 9);
  at += 10;
  read_palette(flags);
  frame.is_interlaced = (flags & kInterlaced) != 0;
  frame.canvas_width = std::max(frame.canvas_width, frame.left + frame.width);
  frame.canvas_height = std::max(frame.canvas_height, frame.top + frame.height);
  frame.data_at = at;
  return frame;
}

std::optional<PnmFields> pnm_fields(std::string_view bytes) {
  const char kind = bytes.size() > 2 ? bytes[1] : '\0';
  PnmFields fields{.is_text = kind <= '3',
                   .is_bilevel = kind == '1' || kind == '4',
                   .samples = kind == '3' || kind == '6' ? 3 : 1,
                   .data_at = 3};
  const auto next = [&]() -> std::optional<int64_t> {
    std::string digits;
    for (uint64_t& at = fields.data_at; at < bytes.size(); ++at) {
      if (bytes[at] == '#') at = std::min(bytes.find_first_of("\r\n", at), bytes.size() - 1);
      const bool is_space = is_pnm_space(bytes[at]);
      if (is_space && digits.empty()) continue;
      constexpr size_t kMostDigits = 10;
      if (!is_space && (bytes[at] < '0' || bytes[at] > '9' || digits.size() == kMostDigits))
        return std::nullopt;
      if (is_space) {
        ++at;
        return std::stoll(digits);
      }
      digits += bytes[at];
    }
    return std::nullopt;
  };
  const auto width = next(), height = next();
  const auto most = fields.is_bilevel ? std::optional<int64_t>(1) : next();
  if (!width || !height || !most || *most < 1 || *most > 65535) return std::nullopt;
  fields.width = *width;
  fields.height = *height;
  fields.most = *most;
  return fields;
}

int orientation_of(std::string_view exif, std::string_view xmp) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  for (int i = 0; i < 2 && exif.starts_with(kPrefix); ++i) exif.remove_prefix(kPrefix.size());
  if (!exif.empty() && !is_tiff(exif)) return 1;
  const std::optional<TiffEntry> entry = find_entry(exif, kOrientationTag);
  const double value = entry && !entry->values.empty() ? first_number(*entry, is_big_endian(exif))
                                                       : xmp_orientation(xmp);
  for (int orientation = 1; orientation <= 8; ++orientation)
    if (value == orientation) return orientation;
  return 1;
}

std::string decode_raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  std::string bytes;
  int high = -1;
  for (const char each : text) {
    if (each == ' ' || (each >= '\t' && each <= '\r')) continue;
    const int digit = hex_digit(each);
    if (digit < 0) return {};
    if (high >= 0) bytes.push_back(static_cast<char>(high << 4 | digit));
    high = high >= 0 ? -1 : digit;
  }
  return bytes;
}

std::optional<std::string> inflate_text(std::string_view stream) {
  constexpr size_t kMost = 1 << 20;
  z_stream job{};
  job.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stream.data()));
  job.avail_in = static_cast<uInt>(stream.size());
  if (inflateInit(&job) != Z_OK) return std::nullopt;
  std::string text(kMost, '\0');
  job.next_out = reinterpret_cast<Bytef*>(text.data());
  job.avail_out = kMost;
  const int result = inflate(&job, Z_SYNC_FLUSH);
  text.resize(kMost - job.avail_out);
  inflateEnd(&job);
  if (result == Z_STREAM_END) return text;
  const bool is_cut = (result == Z_OK || result == Z_BUF_ERROR) && job.avail_in == 0;
  return is_cut ? std::optional(text) : std::nullopt;
}

}  // namespace lft::io
