// The methods of str, list, tuple and dict, by what they do. builtin.h finds them by name.
#pragma once
#include <vector>

#include "src/text/jinja/library/builtin.h"

namespace lft::text::jinja {

std::vector<Builtin> case_methods();    // of letters: upper, isdigit ...
std::vector<Builtin> search_methods();  // find, count, startswith ...
std::vector<Builtin> split_methods();   // split, partition, join ...
std::vector<Builtin> shape_methods();   // strip, replace, center, format ...

}  // namespace lft::text::jinja
