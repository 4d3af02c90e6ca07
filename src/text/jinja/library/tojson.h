// The filter tojson as transformers has it: Python's json.dumps, without escapes for HTML.
#pragma once
#include "src/text/jinja/library/builtin.h"

namespace lft::text::jinja {

Value do_tojson(Arguments& arguments, Work& work);

}  // namespace lft::text::jinja
