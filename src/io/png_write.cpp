#include "src/io/png_write.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace lft::io {
namespace {

std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table;
  for (uint32_t n = 0; n < 256; ++n) {
    uint32_t c = n;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xedb88320u ^ (c >> 1) : c >> 1;
    table[n] = c;
  }
  return table;
}

uint32_t crc32(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = crc_table();
  uint32_t c = ~0u;
  for (const char byte : bytes) c = table[(c ^ static_cast<uint8_t>(byte)) & 255] ^ (c >> 8);
  return ~c;
}

uint32_t adler32(std::string_view bytes) {
  constexpr uint32_t kModulus = 65521;
  uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<uint8_t>(byte)) % kModulus;
    b = (b + a) % kModulus;
  }
  return b << 16 | a;
}

std::string big_endian(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

std::string chunk(const std::string& type, const std::string& data) {
  return big_endian(static_cast<uint32_t>(data.size())) + type + data +
         big_endian(crc32(type + data));
}

/// A zlib stream of stored blocks (RFC 1950, 1951).
std::string stored(const std::string& data) {
  constexpr size_t kBlock = 65535;
  std::string out("\x78\x01", 2);
  for (size_t at = 0; at == 0 || at < data.size(); at += kBlock) {
    const size_t size = std::min(kBlock, data.size() - at);
    out += at + size == data.size() ? '\1' : '\0';
    for (const size_t value : {size, ~size}) {
      out += static_cast<char>(value);
      out += static_cast<char>(value >> 8);
    }
    out.append(data, at, size);
  }
  return out + big_endian(adler32(data));
}

}  // namespace

std::string png_file(const RgbImage& image) {
  const auto width = static_cast<uint32_t>(image.width),
             height = static_cast<uint32_t>(image.height);
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    rows.append(reinterpret_cast<const char*>(image.rgb_hwc.data()) + size_t{3} * width * y,
                size_t{3} * width);
  }
  const std::string header = big_endian(width) + big_endian(height) +
                             std::string("\x08\x02\x00\x00\x00", 5);  // 8 bits, RGB
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", stored(rows)) +
         chunk("IEND", "");
}

}  // namespace lft::io
