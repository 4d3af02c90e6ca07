#include "src/report/protobuf.h"

#include <bit>

namespace lft::report {
namespace {

enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *out += static_cast<char>(value | 0x80);
  *out += static_cast<char>(value);
}

void put_key(std::string* out, uint64_t field, Wire wire) { put_varint(out, field << 3 | wire); }

}  // namespace

void put_little_endian(std::string* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) *out += static_cast<char>(value >> (8 * i));
}

void put_integer(std::string* message, uint64_t field, uint64_t value) {
  put_key(message, field, kVarint);
  put_varint(message, value);
}

void put_double(std::string* message, uint64_t field, double value) {
  put_key(message, field, kFixed64);
  put_little_endian(message, std::bit_cast<uint64_t>(value), 8);
}

void put_float(std::string* message, uint64_t field, float value) {
  put_key(message, field, kFixed32);
  put_little_endian(message, std::bit_cast<uint32_t>(value), 4);
}

void put_bytes(std::string* message, uint64_t field, std::string_view bytes) {
  put_key(message, field, kBytes);
  put_varint(message, bytes.size());
  *message += bytes;
}

}  // namespace lft::report
