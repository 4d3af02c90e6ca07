// The one writer to stdout and stderr while a command goes on: results, notices, and the line that
// stays below them. On a terminal long lines are folded and a few words have colours.
#pragma once
#include <string>
#include <string_view>

namespace lft {

/// A line (or several) to stdout as it is, at once: it stands there while the command goes on.
void print_line(const std::string& line);
/// One line to stderr, escaped, whole even when several threads write. A closed stderr is no error.
void notice(std::string_view line);
/// The same, beginning with "warning: ".
void warning(std::string_view line);
/// warning(), but for a line that this process has printed before.
void warning_once(const std::string& line);

/// Nothing is written from here on, or all again: of the processes of a run one speaks.
void be_quiet(bool quiet);
bool is_quiet();

/// The terminal's last line, below all that is printed from now on; "" takes it away. Nothing where
/// stderr is no terminal.
void show_status(const std::string& line);
/// Leaves it where it stands, as a line like the others.
void keep_status();

}  // namespace lft
