// jinja2's filters, grouped by operand.
#pragma once
#include <string_view>
#include <vector>

#include "src/text/jinja/library/builtin.h"

namespace lft::text::jinja {

std::vector<Builtin> text_filters();
std::vector<Builtin> html_filters();   // escapes and safe marks
std::vector<Builtin> list_filters();   // for whole lists and dicts
std::vector<Builtin> order_filters();  // with keys: sort, groupby, unique, min, max ...
std::vector<Builtin> pick_filters();   // with other filters and tests: map, select ...
std::vector<Builtin> number_filters();

/// Finds a filter by name; null if there is none.
const Builtin* find_filter(std::string_view name);

}  // namespace lft::text::jinja
