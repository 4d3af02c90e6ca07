// Output of a command on stdout and stderr: results, notices, and a status line below them. On a
// terminal long lines are folded and a few words are coloured.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lft {

/// Prints one or more lines to stdout, without change and without buffering.
void print_line(const std::string& line);
/// Prints one escaped line to stderr, also if several threads write. A closed stderr is not an
/// error.
void notice(std::string_view line);
/// As notice(), with "warning: " in front. The text is kept for take_warnings().
void warning(std::string_view line);
/// The same for a warning that the caller records: its text is not kept.
void show_warning(std::string_view line);
/// The texts of the warnings since the last call, oldest first; at most 1000 are kept.
std::vector<std::string> take_warnings();
/// As warning(), but a line that this process has already printed is dropped.
void warning_once(const std::string& line);

/// Turns all output off or on: only one process of a run prints.
void be_quiet(bool quiet);
bool is_quiet();

/// Sets the status on the terminal's last line; "" clears it. Does nothing if stderr is not a
/// terminal.
void show_status(const std::string& line);
/// Keeps the status as an ordinary line.
void keep_status();

}  // namespace lft
