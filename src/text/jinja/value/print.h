// str() and repr() of values, as Python has them.
#pragma once
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// What {{ value }} prints. Throws kInput for what has no text of its own (a function, a
/// generator).
void print(const Value& value, TextBuilder* out);
/// The same as a text.
Text text_of(const Value& value, Work& work);
/// repr(value). `owner` is the source of the value that is printed around it, or -1.
void print_repr(const Value& value, TextBuilder* out, int32_t owner = -1);

/// repr() of a float: "0.1", "1e+16", "inf".
std::string float_repr(double value);

}  // namespace lft::text::jinja
