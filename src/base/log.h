// Plain lines: notices to stderr; results, which the commands print themselves, to stdout.
#pragma once
#include <string>
#include <string_view>

namespace lft {

/// A line to stdout as it is, at once: it stands there while the command goes on.
void print_line(const std::string& line);
/// One line, escaped, whole even when several threads write. A closed stderr is no error.
void notice(std::string_view line);
/// The same, beginning with "warning: ".
void warning(std::string_view line);

}  // namespace lft
