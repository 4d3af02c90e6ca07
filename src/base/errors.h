// How an error looks on the terminal: one block, valid UTF-8, nothing from a file able to move the
// cursor. What it means is in kernels/common/error.h.
#pragma once
#include <string>
#include <string_view>

#include "kernels/common/error.h"

namespace lft {

/// "error: what" and below it the parts that are set (where, found, expected, next), each escaped
/// and cut. Ends with a newline.
std::string format_error(const Error& error);
/// The same error, with `next` where it has no next step of its own.
Error advised(const Error& error, std::string next);
/// Line breaks, control characters, invalid UTF-8 and bidirectional overrides become \n, \x1b,
/// \xff, \u202e; cut with "..." after max_bytes. With keep_lines line breaks stay.
std::string escape_text(std::string_view text, size_t max_bytes = 200, bool keep_lines = false);
/// escape_text in double quotes, quotes and backslashes escaped too.
std::string quote_text(std::string_view text, size_t max_bytes = 200);
/// "2.5 GB" (powers of 1000, as df -H); below 1000 "17 bytes".
std::string format_bytes(double bytes);

}  // namespace lft
