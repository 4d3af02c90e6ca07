// Goes through the fields of a serialised Protocol Buffers message (its wire format's
// documentation). Knows no message.
#pragma once
#include <cstdint>
#include <string_view>

namespace lft::text {

class ProtobufFields {
 public:
  /// The bytes outlive this.
  explicit ProtobufFields(std::string_view message) : rest_(message) {}

  /// Whether there is another field; after it the three below are that field's. kInternal for what
  /// is no message, or has groups.
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
