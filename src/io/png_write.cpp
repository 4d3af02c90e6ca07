#include "src/io/png_write.h"

#include <zlib.h>

#include <new>

namespace lft::io {
namespace {

std::string big_endian(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<uint32_t>(data.size())) + body +
         big_endian(static_cast<uint32_t>(crc));
}

std::string compressed(const std::string& data) {
  uLongf size = compressBound(data.size());
  std::string out(size, '\0');
  if (compress(reinterpret_cast<Bytef*>(out.data()), &size,
               reinterpret_cast<const Bytef*>(data.data()), data.size()) != Z_OK)
    throw std::bad_alloc();  // the only possible failure with a buffer of compressBound()
  out.resize(size);
  return out;
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
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", compressed(rows)) +
         chunk("IEND", "");
}

}  // namespace lft::io
