// Small text helpers that messages need: which known name was meant, lists joined for a line.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lft {

/// Edits (insert, delete, replace, swap of neighbours) from a to b, over bytes.
int edit_distance(std::string_view a, std::string_view b);
/// The candidates that `name` is probably a misspelling of, nearest first, at most `max`; empty
/// when none is near.
std::vector<std::string> closest_names(std::string_view name,
                                       const std::vector<std::string>& candidates, size_t max = 3);
/// Whether a text contains white space alone, or nothing.
bool is_blank_text(std::string_view text);
/// The letters A to Z as a to z; other bytes stay.
std::string lower_ascii(std::string_view text);
/// Without white space at both ends.
std::string_view trimmed(std::string_view text);

/// "a, b, c"; beyond `max` items ", and 7 more".
std::string join(const std::vector<std::string>& items, std::string_view separator = ", ",
                 size_t max = SIZE_MAX);

/// The same of names out of a file (sample ids), each escaped and cut, so that none can break a
/// line.
std::string join_names(const std::vector<std::string>& names, size_t max);

/// A word of a command as a shell reads it back, in single quotes where it needs them: printed
/// commands run as they are. What messages escape (control characters, bytes that are no UTF-8) is
/// in bash's $'...'.
std::string shell_word(const std::string& word);

/// A number by a printf format for one double, at most 63 characters: "0.00123".
std::string format_number(double value, const char* format = "%.3g");

/// "13,350,839,296"; not of negative numbers.
std::string with_commas(int64_t number);

/// The present moment by a strftime format, in UTC; at most 63 characters.
std::string utc_now(const char* format);

}  // namespace lft
