// str() and repr() of values, as in Python.
#pragma once
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// The output of {{ value }}. Throws kInput for a value without a text (a function, a
/// generator).
void print(const Value& value, TextBuilder* out);
/// The same as a text.
Text text_of(const Value& value, Work& work);
/// repr(value). `owner` is the source of the enclosing printed value, or -1.
void print_repr(const Value& value, TextBuilder* out, int32_t owner = -1);

/// repr() of a float: "0.1", "1e+16", "inf".
std::string float_repr(double value);

}  // namespace lft::text::jinja
