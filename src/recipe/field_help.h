// The reference of the recipe fields as plain data and as text for a terminal.
#pragma once
#include <string>
#include <vector>

namespace lft::recipe {

struct FieldHelp {
  std::string key, type;
  std::string initial;     // the default in recipe form, "required" or "none"
  bool has_value = false;  // whether `initial` is a value
  std::string range, help;
};
/// In the order of the recipe's fields.
std::vector<FieldHelp> field_help();

/// The field `name`, or all fields whose key or whose last part begins with it: two or more lines
/// each, of at most 80 columns. kUsage with the nearest name if there is none.
std::vector<std::string> field_lines(const std::string& name);

}  // namespace lft::recipe
