#include "src/text/jinja/value/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace lft::text::jinja {
namespace {

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

utf8proc_category_t category(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

bool has_case(char32_t point) { return is_upper(point) || is_lower(point) || is_title(point); }

/// Characters that the final sigma rule ignores.
bool is_case_ignorable(char32_t point) {
  switch (category(point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return point == '\'' || point == '.' || point == ':' || point == 0xB7 || point == 0x2018 ||
             point == 0x2019;
  }
}

/// Whether the capital sigma in [at, end) ends a word.
bool is_final_sigma(std::string_view text, size_t at, size_t end) {
  const auto cased = [](std::string_view rest, bool backwards) {
    for (size_t i = backwards ? rest.size() : 0; backwards ? i > 0 : i < rest.size();) {
      size_t next = i = backwards ? point_before(rest, i) : i;
      const char32_t point = next_point(rest, &next);
      if (!is_case_ignorable(point)) return has_case(point);
      if (!backwards) i = next;
    }
    return false;
  };
  return cased(text.substr(0, at), true) && !cased(text.substr(end), false);
}

bool is_ascii(char32_t point) { return point < 0x80; }

void append_upper(std::string* out, char32_t point) {
  if (is_ascii(point)) {
    *out += static_cast<char>(point >= 'a' && point <= 'z' ? point - 32 : point);
  } else if (const char* several = long_upper(point)) {
    *out += several;
  } else {
    append_point(out,
                 static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(point))));
  }
}

void append_title(std::string* out, char32_t point) {
  if (is_ascii(point)) {
    append_upper(out, point);
  } else if (const char* several = long_title(point)) {
    *out += several;
  } else {
    append_point(out,
                 static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(point))));
  }
}

void append_lower(std::string* out, std::string_view text, size_t at, size_t end, char32_t point) {
  if (is_ascii(point)) {
    *out += static_cast<char>(point >= 'A' && point <= 'Z' ? point + 32 : point);
  } else if (point == 0x130) {
    *out += "i\u0307";
  } else if (point == 0x3A3) {
    *out += is_final_sigma(text, at, end) ? "\u03C2" : "\u03C3";
  } else {
    append_point(out,
                 static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))));
  }
}

template <class Append>
std::string each_point(std::string_view text, const Append& append) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t point = next_point(text, &at);
    append(&out, point, begin, at);
  }
  return out;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t point = 0;
    const auto length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at), &point);
    if (length <= 0) return false;
    at += static_cast<size_t>(length);
  }
  return true;
}

int64_t count_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !is_continuation(byte); });
}

size_t skip_points(std::string_view text, size_t from, int64_t count) {
  for (; count > 0 && from < text.size(); --count) {
    ++from;
    while (from < text.size() && is_continuation(text[from])) ++from;
  }
  return from;
}

char32_t next_point(std::string_view text, size_t* at) {
  const auto lead = static_cast<unsigned char>(text[(*at)++]);
  if (lead < 0x80) return lead;
  char32_t point = lead < 0xE0 ? lead & 0x1F : lead < 0xF0 ? lead & 0x0F : lead & 0x07;
  for (; *at < text.size() && is_continuation(text[*at]); ++*at)
    point = point << 6 | (static_cast<unsigned char>(text[*at]) & 0x3F);
  return point;
}

size_t point_before(std::string_view text, size_t at) {
  for (--at; at > 0 && is_continuation(text[at]);) --at;
  return at;
}

void append_point(std::string* text, char32_t point) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

bool is_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x20) || point == 0x85 ||
         point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) ||
         point == 0x2028 || point == 0x2029 || point == 0x202F || point == 0x205F ||
         point == 0x3000;
}

bool is_alpha(char32_t point) {
  const auto kind = category(point);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t point) { return category(point) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t point) {
  constexpr struct {
    char32_t first, last;
  } kMore[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
               {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
               {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
               {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
               {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return is_decimal(point) || std::any_of(std::begin(kMore), std::end(kMore), [&](const auto& row) {
           return row.first <= point && point <= row.last;
         });
}

bool is_upper(char32_t point) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(point)); }
bool is_lower(char32_t point) { return utf8proc_islower(static_cast<utf8proc_int32_t>(point)); }
bool is_title(char32_t point) { return category(point) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t point) {
  switch (category(point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return point == ' ';
    default:
      return true;
  }
}

std::string to_upper(std::string_view text) {
  return each_point(
      text, [](std::string* out, char32_t point, size_t, size_t) { append_upper(out, point); });
}

std::string to_lower(std::string_view text) {
  return each_point(text, [&](std::string* out, char32_t point, size_t at, size_t end) {
    append_lower(out, text, at, end, point);
  });
}

std::string to_title(std::string_view text) {
  bool in_word = false;
  return each_point(text, [&](std::string* out, char32_t point, size_t at, size_t end) {
    in_word ? append_lower(out, text, at, end, point) : append_title(out, point);
    in_word = has_case(point);
  });
}

std::string to_capitalized(std::string_view text) {
  return each_point(text, [&](std::string* out, char32_t point, size_t at, size_t end) {
    at == 0 ? append_title(out, point) : append_lower(out, text, at, end, point);
  });
}

std::string swap_case(std::string_view text) {
  return each_point(text, [&](std::string* out, char32_t point, size_t at, size_t end) {
    if (is_upper(point)) {
      append_lower(out, text, at, end, point);
    } else if (is_lower(point)) {
      append_upper(out, point);
    } else {
      append_point(out, point);
    }
  });
}

std::string fold_case(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  std::string out(text);
  if (length >= 0) out.assign(reinterpret_cast<const char*>(folded), static_cast<size_t>(length));
  free(folded);
  return out;
}

}  // namespace lft::text::jinja
