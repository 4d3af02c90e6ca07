#include "src/text/pipeline/aligned.h"

#include <limits>

#include "kernels/common/error.h"

namespace lft::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Decoded {
  size_t length;  // consumed bytes, at least 1
  bool valid;
};

bool continues(std::string_view text, size_t pos, uint8_t low = 0x80, uint8_t high = 0xBF) {
  return pos < text.size() && uint8_t(text[pos]) >= low && uint8_t(text[pos]) <= high;
}

/// The number of leading ASCII bytes.
size_t ascii_prefix(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && uint8_t(text[end]) < 0x80) ++end;
  return end;
}

/// Decodes one character, or the longest prefix of one (Unicode's "maximal subpart").
Decoded decode_one(std::string_view text, size_t pos) {
  const auto lead = uint8_t(text[pos]);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte excludes overlong forms, surrogates and code points above U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (!continues(text, pos + 1, low, high)) return {1, false};
  for (size_t i = 2; i < length; ++i) {
    if (!continues(text, pos + i)) return {i, false};
  }
  return {length, true};
}

}  // namespace

void Aligned::append(std::string_view bytes, ByteRange source) {
  text.append(bytes);
  for (size_t i = 0; i < bytes.size(); ++i) at.push_back(source);
}

void Aligned::append(const Aligned& from, size_t begin, size_t end) {
  text.append(from.text, begin, end - begin);
  at.insert(at.end(), from.at.begin() + ptrdiff_t(begin), from.at.begin() + ptrdiff_t(end));
}

Aligned Aligned::slice(size_t begin, size_t end) const {
  Aligned out;
  out.append(*this, begin, end);
  return out;
}

ByteRange Aligned::source(size_t begin, size_t end) const {
  if (begin < end) return {at[begin].begin, at[end - 1].end};
  const uint32_t pos = begin < at.size() ? at[begin].begin : at.empty() ? 0 : at.back().end;
  return {pos, pos};
}

void check_growth(uint64_t bytes, uint64_t source) {
  constexpr uint64_t kSpare = 1024, kFactor = 16;
  if (bytes <= kSpare + kFactor * source && bytes < std::numeric_limits<uint32_t>::max()) return;
  refuse(ErrorKind::kInput, "a text grows past the limit in normalization", {},
         std::to_string(bytes) + " bytes out of " + std::to_string(source),
         "at most " + std::to_string(kFactor) + " times as many, and less than 4 GiB",
         "take a tokenizer whose normalizer, pre-tokenizer and decoder do less");
}

Aligned align_utf8(std::string_view source) {
  if (source.size() >= std::numeric_limits<uint32_t>::max()) {
    refuse(ErrorKind::kInput, "text too long to tokenise", {},
           std::to_string(source.size()) + " bytes", "less than 4 GiB",
           "split the text into several");
  }
  Aligned out;
  out.text.reserve(source.size());
  out.at.reserve(source.size());
  for (size_t pos = 0; pos < source.size();) {
    if (const size_t ascii = ascii_prefix(source.substr(pos)); ascii > 0) {
      out.text.append(source, pos, ascii);
      for (const size_t end = pos + ascii; pos < end; ++pos)
        out.at.push_back({uint32_t(pos), uint32_t(pos + 1)});
      continue;
    }
    const Decoded one = decode_one(source, pos);
    out.append(one.valid ? source.substr(pos, one.length) : kReplacement,
               {uint32_t(pos), uint32_t(pos + one.length)});
    pos += one.length;
  }
  return out;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t pos = 0; pos < bytes.size();) {
    const Decoded one = decode_one(bytes, pos);
    out.append(one.valid ? bytes.substr(pos, one.length) : kReplacement);
    pos += one.length;
  }
  return out;
}

size_t utf8_length(std::string_view text, size_t pos) {
  const auto lead = uint8_t(text[pos]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

uint32_t utf8_decode(std::string_view text, size_t pos) {
  const size_t length = utf8_length(text, pos);
  const auto lead = uint8_t(text[pos]);
  if (length == 1) return lead;
  uint32_t code = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) code = (code << 6) | (uint8_t(text[pos + i]) & 0x3Fu);
  return code;
}

void utf8_append(std::string& out, uint32_t code_point) {
  if (code_point < 0x80) {
    out += char(code_point);
  } else if (code_point < 0x800) {
    out += {char(0xC0 | (code_point >> 6)), char(0x80 | (code_point & 0x3F))};
  } else if (code_point < 0x10000) {
    out += {char(0xE0 | (code_point >> 12)), char(0x80 | ((code_point >> 6) & 0x3F)),
            char(0x80 | (code_point & 0x3F))};
  } else {
    out += {char(0xF0 | (code_point >> 18)), char(0x80 | ((code_point >> 12) & 0x3F)),
            char(0x80 | ((code_point >> 6) & 0x3F)), char(0x80 | (code_point & 0x3F))};
  }
}

}  // namespace lft::text
