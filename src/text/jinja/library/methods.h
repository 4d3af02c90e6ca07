// The methods of str, list, tuple and dict by purpose.
#pragma once
#include <string_view>
#include <vector>

#include "src/text/jinja/library/builtin.h"

namespace lft::text::jinja {

std::vector<Builtin> case_methods();    // letters: upper, isdigit ...
std::vector<Builtin> search_methods();  // find, count, startswith ...
std::vector<Builtin> split_methods();   // split, partition, join ...
std::vector<Builtin> shape_methods();   // strip, replace, center, format ...

/// Finds an attribute of str, list, tuple or dict by name; null if there is none.
const Builtin* find_method(Kind receiver, std::string_view name);

}  // namespace lft::text::jinja
