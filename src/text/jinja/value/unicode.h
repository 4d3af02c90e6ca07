// Code points in UTF-8: counting, their classes as in Python's str, and case conversion. Texts must
// be valid UTF-8.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lft::text::jinja {

bool is_utf8(std::string_view text);
int64_t count_points(std::string_view text);
/// The offset of the code point `count` after the one at byte `from`; at most text.size().
size_t skip_points(std::string_view text, size_t from, int64_t count);
/// The code point at byte `*at`, which is advanced.
char32_t next_point(std::string_view text, size_t* at);
/// The offset of the code point before byte `at`, which is above 0.
size_t point_before(std::string_view text, size_t at);
/// `point` must not be a surrogate.
void append_point(std::string* text, char32_t point);

/// As in str.isspace() and \s.
bool is_space(char32_t point);
bool is_alpha(char32_t point);
bool is_decimal(char32_t point);
bool is_digit(char32_t point);
bool is_upper(char32_t point);
bool is_lower(char32_t point);
bool is_title(char32_t point);
/// Whether repr() shows it unescaped.
bool is_printable(char32_t point);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// For str.title(): the first letter of every sequence of letters.
std::string to_title(std::string_view text);
/// For str.capitalize().
std::string to_capitalized(std::string_view text);
std::string swap_case(std::string_view text);
/// For str.casefold().
std::string fold_case(std::string_view text);

/// The upper and title case of a code point if they are several code points, or null.
const char* long_upper(char32_t point);
const char* long_title(char32_t point);

}  // namespace lft::text::jinja
