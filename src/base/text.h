// Small text helpers for messages: nearest names, joined lists, quoting, numbers.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lft {

/// Number of edits (insert, delete, replace, swap of neighbours) from a to b, over bytes.
int edit_distance(std::string_view a, std::string_view b);
/// The candidates that `name` may be a misspelling of, nearest first, at most `max`.
std::vector<std::string> closest_names(std::string_view name,
                                       const std::vector<std::string>& candidates, size_t max = 3);
/// Whether a text is empty or only white space.
bool is_blank_text(std::string_view text);
/// The text with A to Z in lower case; other bytes do not change.
std::string lower_ascii(std::string_view text);
/// The text without white space at both ends.
std::string_view trimmed(std::string_view text);

/// "a, b, c"; beyond `max` items ", and 7 more".
std::string join(const std::vector<std::string>& items, std::string_view separator = ", ",
                 size_t max = SIZE_MAX);

/// As join(), for names from a file (sample ids), which are escaped and truncated.
std::string join_names(const std::vector<std::string>& names, size_t max);

/// A word of a command, quoted for the shell if necessary, so that printed commands can be run.
/// Control characters and invalid UTF-8 are in bash's $'...'.
std::string shell_word(const std::string& word);

/// A number in a printf format, at most 63 characters: "0.00123".
std::string format_number(double value, const char* format = "%.3g");

/// "13,350,839,296"; the number must not be negative.
std::string with_commas(int64_t number);

/// The current time in UTC, in a strftime format; at most 63 characters.
std::string utc_now(const char* format);

}  // namespace lft
