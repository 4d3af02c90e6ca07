// Plain lines to stderr. Results go to stdout and are printed by the commands themselves.
#pragma once
#include <string_view>

namespace lft {

/// One line, escaped, whole even when several threads write. A closed stderr is no error.
void notice(std::string_view line);
/// The same, beginning with "warning: ".
void warning(std::string_view line);

}  // namespace lft
