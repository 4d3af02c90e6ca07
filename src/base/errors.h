// The text of an error on the terminal: one block of valid UTF-8 without control characters. The
// error type is in kernels/common/error.h.
#pragma once
#include <string>
#include <string_view>

#include "kernels/common/error.h"

namespace lft {

/// "error: what" and the parts that are set (where, found, expected, next), escaped and truncated.
/// It ends with a newline.
std::string format_error(const Error& error);
/// The same error with `next`, unless it already has a next step.
Error advised(const Error& error, std::string next);
/// Line breaks, control characters, invalid UTF-8 and bidirectional overrides become \n, \x1b,
/// \xff, \u202e; the text is truncated with "..." after max_bytes. With keep_lines line breaks are
/// kept.
std::string escape_text(std::string_view text, size_t max_bytes = 200, bool keep_lines = false);
/// escape_text() in double quotes, with quotes and backslashes escaped.
std::string quote_text(std::string_view text, size_t max_bytes = 200);
/// "2.5 GB" (powers of 1000, as df -H); below 1000 "17 bytes".
std::string format_bytes(double bytes);

}  // namespace lft
