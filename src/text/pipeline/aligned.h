// Text under normalisation: every byte keeps the range of source bytes that it represents.
// Independent of tokens.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lft::text {

/// Half-open byte range.
struct ByteRange {
  uint32_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

/// `at[i]` is the source range of byte i, that of its whole character. An inserted prefix shares
/// the range of the character after it.
struct Aligned {
  std::string text;  // valid UTF-8
  std::vector<ByteRange> at;

  bool empty() const { return text.empty(); }
  void append(std::string_view bytes, ByteRange source);
  void append(const Aligned& from, size_t begin, size_t end);
  Aligned slice(size_t begin, size_t end) const;
  /// Source range of the bytes [begin, end); an empty range maps to the position of the next byte.
  ByteRange source(size_t begin, size_t end) const;
};

/// Throws kInput if a tokenizer's rules expand `source` to far more `bytes` than the rules of a
/// language do, or to 4 GiB.
void check_growth(uint64_t bytes, uint64_t source);

/// Each invalid byte sequence becomes one U+FFFD per maximal subpart, as Python's and Rust's
/// decoders do. At most 2^32 - 1 bytes.
Aligned align_utf8(std::string_view source);
/// The same without the ranges.
std::string to_valid_utf8(std::string_view bytes);
/// The length in bytes of the character at text[pos]; text is valid UTF-8.
size_t utf8_length(std::string_view text, size_t pos);
/// The code point at text[pos]; text is valid UTF-8.
uint32_t utf8_decode(std::string_view text, size_t pos);
void utf8_append(std::string& out, uint32_t code_point);

}  // namespace lft::text
