#include "src/base/errors.h"

#include <cstdint>
#include <cstdio>
#include <utility>

namespace lft {
namespace {

/// Length of the valid UTF-8 sequence at the front, 0 if there is none. *code is its code point.
size_t utf8_length(std::string_view text, uint32_t* code) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    *code = first;
    return 1;
  }
  const size_t length = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  *code = first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    *code = (*code << 6) | (byte(i) & 0x3f);
  }
  const uint32_t lowest = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  return *code < lowest || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : length;
}

/// C1 controls, line separators and marks that change a terminal's text direction.
bool is_invisible_control(uint32_t code) {
  return (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || code == 0x200e ||
         code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

std::string printf_string(const char* format, unsigned value) {
  char buffer[32];
  snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string escape_character(uint32_t code, std::string_view bytes, bool quoted, bool keep_lines) {
  if (code == '\n') return keep_lines ? "\n" : "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  if (quoted && (code == '"' || code == '\\')) return std::string("\\") + static_cast<char>(code);
  if (code < 0x20 || code == 0x7f) return printf_string("\\x%02x", code);
  if (is_invisible_control(code)) return printf_string("\\u%04x", code);
  return std::string(bytes);
}

std::string escape(std::string_view text, size_t max_bytes, bool quoted, bool keep_lines) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    uint32_t code = 0;
    const size_t length = utf8_length(text.substr(at), &code);
    const std::string piece =
        length == 0 ? printf_string("\\x%02x", static_cast<unsigned char>(text[at]))
                    : escape_character(code, text.substr(at, length), quoted, keep_lines);
    if (out.size() + piece.size() > max_bytes) return out + "...";
    out += piece;
    at += length == 0 ? 1 : length;
  }
  return out;
}

/// Further lines of a part are indented. "error:" occurs once in the block, so that a script can
/// count errors.
void append_part(std::string* block, const char* label, const std::string& part) {
  constexpr size_t kMaxPart = 4000;
  constexpr std::string_view kMark = "error:";
  if (part.empty()) return;
  std::string line = escape_text(part, kMaxPart, true);
  for (size_t at = line.find(kMark); at != std::string::npos; at = line.find(kMark, at))
    line.replace(at, kMark.size(), "error -");
  while (!line.empty() && line.back() == '\n') line.pop_back();
  line.insert(0, label);
  for (size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n', at + 1))
    line.insert(at + 1, "    ");
  *block += line + "\n";
}

}  // namespace

std::string escape_text(std::string_view text, size_t max_bytes, bool keep_lines) {
  return escape(text, max_bytes, false, keep_lines);
}

std::string quote_text(std::string_view text, size_t max_bytes) {
  return '"' + escape(text, max_bytes, true, false) + '"';
}

Error advised(const Error& error, std::string next) {
  ErrorInfo info = error.info();
  if (info.next.empty()) info.next = std::move(next);
  return Error(error.kind(), std::move(info));
}

std::string format_error(const Error& error) {
  const ErrorInfo& info = error.info();
  std::string block;
  append_part(&block, "error: ", info.what.empty() ? "unknown failure" : info.what);
  append_part(&block, "  where: ", info.where);
  append_part(&block, "  found: ", info.found);
  append_part(&block, "  expected: ", info.expected);
  append_part(&block, "  next: ", info.next);
  return block;
}

std::string format_bytes(double bytes) {
  const char* units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 5) {
    bytes /= 1000;
    ++unit;
  }
  char buffer[64];
  snprintf(buffer, sizeof buffer, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return buffer;
}

}  // namespace lft
