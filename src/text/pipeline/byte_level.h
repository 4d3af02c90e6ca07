// GPT-2's printable stand-ins for the 256 bytes, as byte-level BPE vocabularies spell them. Knows
// no vocabulary.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lft::text {

/// The stand-in of a byte, as UTF-8 (one or two bytes).
const std::string& byte_to_char(unsigned char byte);
/// The byte that a code point stands for, -1 for any other.
int char_to_byte(uint32_t code_point);

}  // namespace lft::text
