// Iterates over the fields of a serialised Protocol Buffers message of any type (see the
// documentation of the wire format).
#pragma once
#include <cstdint>
#include <string_view>

namespace lft::text {

class ProtobufFields {
 public:
  /// The bytes must outlive this object.
  explicit ProtobufFields(std::string_view message) : rest_(message) {}

  /// Moves to the next field, which the three functions below describe; false at the end. kInternal
  /// for bytes that are not a message, and for groups.
  bool next();
  uint32_t field() const { return field_; }
  uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }

 private:
  uint64_t varint();
  std::string_view take(uint64_t bytes);

  std::string_view rest_, bytes_;
  uint32_t field_ = 0;
  uint64_t number_ = 0;
};

}  // namespace lft::text
