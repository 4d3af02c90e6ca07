// Formats numbers and texts in fields, for `%` and str.format(). It does not parse formats.
#pragma once
#include <string>

#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

struct FieldSpec {
  std::string fill = " ";  // one code point
  char align = 0;          // < > ^ =, or 0: the default of the value's type
  char sign = '-';         // - + or a space
  bool alternate = false;  // #
  char grouping = 0;       // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

/// Widths and precisions are limited: throws kInput.
int64_t checked_precision(int64_t precision, Work& work);

/// The digits of an integer in the spec's type (b c d n o x X, or none): "-0xff".
std::string integer_digits(int64_t value, const FieldSpec& spec, Work& work);
/// The digits of a float for e E f F g G % or none, which is repr() or, with a precision, almost g.
std::string float_digits(double value, const FieldSpec& spec, Work& work);

/// Places digits in their field: a fill for `=` goes after the sign and the prefix. `owner` is the
/// source of the number.
void append_number(const std::string& digits, const FieldSpec& spec, int32_t owner,
                   TextBuilder* out);
/// A text, truncated to `precision` code points.
void append_text(const Text& text, const FieldSpec& spec, TextBuilder* out);

}  // namespace lft::text::jinja
