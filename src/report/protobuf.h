// Encodes the fields of a protobuf message: a message is the text of its fields.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lft::report {

void put_integer(std::string* message, uint64_t field, uint64_t value);
void put_double(std::string* message, uint64_t field, double value);
void put_float(std::string* message, uint64_t field, float value);
/// Text, bytes, or another message.
void put_bytes(std::string* message, uint64_t field, std::string_view bytes);
void put_little_endian(std::string* out, uint64_t value, int bytes);

}  // namespace lft::report
