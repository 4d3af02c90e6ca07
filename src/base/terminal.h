// What stands at the end of stdout or stderr: a terminal or not, how wide, whether with colours.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lft {

/// One that understands control sequences: not under TERM=dumb.
bool is_terminal(int fd);
/// Columns; 80 where it does not say, and where `fd` is no terminal.
int64_t terminal_width(int fd);

enum class Colour { kRed = 31, kGreen = 32, kYellow = 33 };
/// `text` in that colour where `fd` is a terminal and NO_COLOR is not set; else as it is.
std::string coloured(std::string_view text, Colour colour, int fd);

/// Columns that a text takes, control sequences of colours not counted.
int64_t columns_of(std::string_view text);
/// A line in parts of at most `width` columns, broken at blanks, joined by line breaks. Further
/// parts begin where the line's second column does, if it has one in its first half, else four
/// columns further in than the line. A word that is wider stays whole: it may be a path.
std::string fold(std::string_view line, int64_t width);

}  // namespace lft
