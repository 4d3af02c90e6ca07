// text.format(values): Python's fields in braces, their attributes and items looked up as the
// sandbox does.
#pragma once
#include "src/text/jinja/library/builtin.h"

namespace lft::text::jinja {

/// The first argument is the format.
Value format_braces(const Arguments& arguments, Work& work);

}  // namespace lft::text::jinja
