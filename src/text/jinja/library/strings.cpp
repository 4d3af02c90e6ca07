#include "src/text/jinja/library/strings.h"

#include <utf8proc.h>

#include "src/text/jinja/value/compare.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

bool ends_line(char32_t point) {
  return (point >= 0x0A && point <= 0x0D) || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
         point == 0x2028 || point == 0x2029;
}

/// Inserts the replacement before every character and after the last.
Text interleaved(const Text& text, const Text& with, int64_t count, Work& work) {
  TextBuilder out(work);
  size_t at = 0;
  for (; count != 0; --count) {
    work.step();
    out.append(with);
    if (at >= text.size()) break;
    const size_t next = skip_points(text.bytes(), at, 1);
    out.append(text, at, next);
    at = next;
  }
  out.append(text, at, text.size());
  return out.finish();
}

}  // namespace

Text strip(const Text& text, const Text* characters, bool left, bool right, Work& work) {
  const std::string_view bytes = text.bytes();
  const auto takes = [&](size_t begin) {
    size_t end = begin;
    const char32_t point = next_point(bytes, &end);
    if (characters == nullptr) return is_space(point);
    work.step();
    return find_bytes(characters->bytes(), bytes.substr(begin, end - begin), 0, work) !=
           std::string_view::npos;
  };
  size_t begin = 0, end = bytes.size();
  while (left && begin < end && takes(begin)) begin = skip_points(bytes, begin, 1);
  while (right && end > begin && takes(point_before(bytes, end))) end = point_before(bytes, end);
  return text.slice(begin, end, work);
}

Text replaced(const Text& text, const Text& old, const Text& with, int64_t count, Work& work) {
  if (old.empty()) return interleaved(text, with, count, work);
  size_t found =
      count == 0 ? std::string_view::npos : find_bytes(text.bytes(), old.bytes(), 0, work);
  if (found == std::string_view::npos) return text;
  TextBuilder out(work);
  size_t at = 0;
  while (found != std::string_view::npos && count != 0) {
    out.append(text, at, found);
    out.append(with);
    at = found + old.size();
    --count;
    found = find_bytes(text.bytes(), old.bytes(), at, work);
  }
  out.append(text, at, text.size());
  return out.finish();
}

Text padded(const Text& text, int64_t left, int64_t right, const Text& fill, Work& work) {
  left = std::max<int64_t>(left, 0);
  right = std::max<int64_t>(right, 0);
  if (left == 0 && right == 0) return text;
  if (fill.points() != 1)
    work.refuse("the chat template fills a text with what is no single character");
  work.take_many(static_cast<uint64_t>(left), fill.size());
  work.take_many(static_cast<uint64_t>(right), fill.size());
  TextBuilder out(work);
  for (int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(text);
  for (int64_t i = 0; i < right; ++i) out.append(fill);
  return out.finish();
}

Text centered(const Text& text, int64_t width, const Text& fill, Work& work) {
  const int64_t rest = width > text.points() ? width - text.points() : 0;
  const int64_t left = rest / 2 + (rest & width & 1);
  return padded(text, left, rest - left, fill, work);
}

std::vector<Text> split_lines(const Text& text, bool keep_ends, Work& work) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = at;
    if (!ends_line(next_point(bytes, &at))) continue;
    if (bytes[end] == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.slice(begin, keep_ends ? at : end, work));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size(), work));
  work.take(lines.size() * sizeof(Value));
  return lines;
}

Value rewritten(std::string bytes, const Text& text, const char* by, Work& work) {
  work.step(1 + static_cast<int64_t>(bytes.size() / 4));
  if (bytes == text.bytes()) return Value::of(text);
  return Value::of(without_origin(std::move(bytes), text, by, work));
}

bool is_word_point(char32_t point) {
  if (point == '_' || is_alpha(point)) return true;
  const auto kind = utf8proc_category(static_cast<utf8proc_int32_t>(point));
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

}  // namespace lft::text::jinja
