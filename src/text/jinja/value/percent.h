// text % values: Python's printf-style formatting.
#pragma once
#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {

/// `values` is a tuple, a dict for %(name)s, or a single value.
Value format_percent(const Text& format, const Value& values, Work& work);

}  // namespace lft::text::jinja
