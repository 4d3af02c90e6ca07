#include "src/io/image_bytes.h"

namespace lft::io {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr int kByte = 1, kShort = 3, kLong = 4;

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
  const bool big = tiff.substr(0, 2) == "MM";
  if (!big && tiff.substr(0, 2) != "II") return std::nullopt;
  const auto first = number_at(tiff, 4, 4, big);
  const uint64_t directory = first.value_or(0);
  const uint32_t entries = first ? number_at(tiff, directory, 2, big).value_or(0) : 0;
  for (uint32_t i = 0; i < entries; ++i) {
    const uint64_t at = directory + 2 + 12ull * i;
    const auto name = number_at(tiff, at, 2, big), type = number_at(tiff, at + 2, 2, big),
               count = number_at(tiff, at + 4, 4, big);
    if (!name || !type || !count) return std::nullopt;
    if (*name != tag) continue;
    const uint32_t size = *type == kByte ? 1 : *type == kShort ? 2 : *type == kLong ? 4 : 0;
    if (size == 0 || *count == 0) return std::nullopt;
    const uint64_t value_at = uint64_t{size} * *count <= 4
                                  ? at + 8
                                  : number_at(tiff, at + 8, 4, big).value_or(UINT32_MAX);
    return number_at(tiff, value_at, static_cast<int>(size), big);
  }
  return std::nullopt;
}

int orientation_of(std::string_view exif, std::string_view xmp) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  if (exif.substr(0, kPrefix.size()) == kPrefix) exif.remove_prefix(kPrefix.size());
  const auto tag = tiff_tag(exif, kOrientationTag);
  const int value = tag ? static_cast<int>(*tag & 0xffff) : xmp_orientation(xmp);
  return value >= 1 && value <= 8 ? value : 1;
}

}  // namespace lft::io
