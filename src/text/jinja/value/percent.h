// text % values: Python's printf.
#pragma once
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// `values` is a tuple, a dict for %(name)s, or the one value.
Value format_percent(const Text& format, const Value& values, Work& work);

}  // namespace lft::text::jinja
