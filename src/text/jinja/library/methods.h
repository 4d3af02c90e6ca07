// The methods of str, list, tuple and dict by purpose. builtin.h finds them by name.
#pragma once
#include <vector>

#include "src/text/jinja/library/builtin.h"

namespace lft::text::jinja {

std::vector<Builtin> case_methods();    // letters: upper, isdigit ...
std::vector<Builtin> search_methods();  // find, count, startswith ...
std::vector<Builtin> split_methods();   // split, partition, join ...
std::vector<Builtin> shape_methods();   // strip, replace, center, format ...

}  // namespace lft::text::jinja
