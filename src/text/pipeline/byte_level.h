// GPT-2's printable characters for the 256 bytes, as used in byte-level BPE vocabularies.
// Independent of vocabularies.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lft::text {

/// The character for a byte, as UTF-8 (one or two bytes).
const std::string& byte_to_char(unsigned char byte);
/// The byte for a code point, -1 for any other.
int char_to_byte(uint32_t code_point);

}  // namespace lft::text
