// Parses numbers and string escapes of templates.
#pragma once
#include <string>
#include <string_view>

#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

struct NumberLiteral {
  size_t length = 0;
  Value value;
  bool too_large = false;
};
/// The number at the beginning of `text`, whose first character is a digit. Directly after a dot it
/// is never a float.
NumberLiteral read_number_literal(std::string_view text, bool after_dot);

/// Decodes the text between quotes with Python's escapes. False: `fault` is the error.
bool unescape(std::string_view text, std::string* value, std::string* fault);

}  // namespace lft::text::jinja
