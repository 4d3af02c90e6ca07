// The filter tojson as in transformers: Python's json.dumps, without HTML escapes.
#pragma once
#include "src/text/jinja/library/builtin.h"

namespace lft::text::jinja {

Value do_tojson(Arguments& arguments, Work& work);

}  // namespace lft::text::jinja
