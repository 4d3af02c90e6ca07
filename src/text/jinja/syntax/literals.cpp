#include "src/text/jinja/syntax/literals.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

int digit_value(char byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return 99;
}

/// The end of digits in a base from `at` on, with single underscores between them; `at` if none.
size_t digits_end(std::string_view text, size_t at, int base) {
  if (at >= text.size() || digit_value(text[at]) >= base) return at;
  for (++at; at < text.size(); ++at) {
    if (digit_value(text[at]) < base) continue;
    if (text[at] != '_' || at + 1 >= text.size() || digit_value(text[at + 1]) >= base) break;
  }
  return at;
}

/// The length of a float, or 0 if there is none.
size_t float_length(std::string_view text) {
  size_t end = digits_end(text, 0, 10);
  bool is_float = false;
  if (end + 1 < text.size() && text[end] == '.' && digit_value(text[end + 1]) < 10) {
    end = digits_end(text, end + 1, 10);
    is_float = true;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t at = end + 1;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const size_t exponent = digits_end(text, at, 10);
    if (exponent > at) {
      end = exponent;
      is_float = true;
    }
  }
  return is_float ? end : 0;
}

size_t prefixed_length(std::string_view text, int* base) {
  if (text.size() < 3 || text[0] != '0') return 0;
  const char mark = static_cast<char>(text[1] | 0x20);
  *base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (*base == 0) return 0;
  const size_t begin = text[2] == '_' ? 3 : 2;
  const size_t end = digits_end(text, begin, *base);
  return end > begin ? end : 0;
}

/// Only zeros if it begins with one: 007 is 00 and 7.
size_t decimal_length(std::string_view text) {
  if (text[0] != '0') return digits_end(text, 0, 10);
  return digits_end(text, 0, 1);
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char byte : text)
    if (byte != '_') out += byte;
  return out;
}

bool is_surrogate(uint32_t point) { return point >= 0xD800 && point < 0xE000; }

/// The code point with `digits` digits in `base` at `at`, at most 0x10FFFF; -1 if they are not
/// there.
int64_t read_digits(std::string_view text, size_t at, size_t digits, int base) {
  int64_t value = 0;
  for (size_t i = at; i < at + digits; ++i) {
    if (i >= text.size() || digit_value(text[i]) >= base) return -1;
    value = value * base + digit_value(text[i]);
  }
  return value;
}

/// jinja2 escapes non-ASCII characters before it decodes escapes, so after a backslash the escape
/// itself remains.
std::string escape_of(char32_t point) {
  char out[16];
  snprintf(out, sizeof out,
           point < 0x100     ? "\\x%02x"
           : point < 0x10000 ? "\\u%04x"
                             : "\\U%08x",
           static_cast<unsigned>(point));
  return out;
}

}  // namespace

NumberLiteral read_number_literal(std::string_view text, bool after_dot) {
  NumberLiteral out;
  out.length = after_dot ? 0 : float_length(text);
  if (out.length > 0) {
    out.value =
        Value::of(std::strtod(without_underscores(text.substr(0, out.length)).c_str(), nullptr));
    return out;
  }
  int base = 10;
  out.length = prefixed_length(text, &base);
  if (out.length == 0) {
    base = 10;
    out.length = decimal_length(text);
  }
  int64_t value = 0;
  for (const char byte :
       without_underscores(text.substr(base == 10 ? 0 : 2, out.length - (base == 10 ? 0 : 2)))) {
    out.too_large |= __builtin_mul_overflow(value, int64_t{base}, &value) ||
                     __builtin_add_overflow(value, int64_t{digit_value(byte)}, &value);
  }
  out.value = Value::of(value);
  return out;
}

bool unescape(std::string_view text, std::string* value, std::string* fault) {
  constexpr std::string_view kPlain = "\\'\"abfnrtv", kMeans = "\\'\"\a\b\f\n\r\t\v";
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\') {
      *value += text[at++];
      continue;
    }
    if (++at >= text.size()) {
      *fault = "a text ends with a backslash";
      return false;
    }
    const char mark = text[at];
    if (mark == '\n') {
      ++at;
    } else if (const size_t known = kPlain.find(mark); known != std::string_view::npos) {
      *value += kMeans[known];
      ++at;
    } else if (mark >= '0' && mark <= '7') {
      size_t digits = 1;
      while (digits < 3 && read_digits(text, at, digits + 1, 8) >= 0) ++digits;
      append_point(value, static_cast<char32_t>(read_digits(text, at, digits, 8)));
      at += digits;
    } else if (mark == 'x' || mark == 'u' || mark == 'U') {
      const size_t digits = mark == 'x' ? 2 : mark == 'u' ? 4 : 8;
      const int64_t point = read_digits(text, at + 1, digits, 16);
      if (point < 0 || point > 0x10FFFF || is_surrogate(static_cast<uint32_t>(point))) {
        *fault = "a text has an escape that is no character";
        return false;
      }
      append_point(value, static_cast<char32_t>(point));
      at += 1 + digits;
    } else if (mark == 'N') {
      *fault = "a text names a character by \\N, which is not supported";
      return false;
    } else {
      const char32_t point = next_point(text, &at);
      *value += point < 0x80 ? std::string{'\\', mark} : escape_of(point);
    }
  }
  return true;
}

}  // namespace lft::text::jinja
