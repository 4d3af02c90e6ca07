// text.format(values): Python's replacement fields; attributes and items are looked up as in the
// sandbox.
#pragma once
#include "src/text/jinja/library/builtin.h"

namespace lft::text::jinja {

/// The first argument is the format string.
Value format_braces(const Arguments& arguments, Work& work);

}  // namespace lft::text::jinja
