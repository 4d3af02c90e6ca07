// Properties of stdout and stderr: whether it is a terminal, its width, its colours.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lft {

/// Whether it is a terminal that understands control sequences (not with TERM=dumb).
bool is_terminal(int fd);
/// Width in columns; 80 if it is unknown or `fd` is not a terminal.
int64_t terminal_width(int fd);

enum class Colour { kRed = 31, kGreen = 32, kYellow = 33 };
/// `text` in that colour if `fd` is a terminal and NO_COLOR is not set, otherwise unchanged.
std::string coloured(std::string_view text, Colour colour, int fd);

/// Width of a text in columns, without control sequences of colours.
int64_t columns_of(std::string_view text);
/// Folds a line to at most `width` columns at blanks. Continuations start at the line's second
/// column if that is in its first half, otherwise four columns further in than the line. A wider
/// word is not broken: it may be a path.
std::string fold(std::string_view line, int64_t width);

}  // namespace lft
