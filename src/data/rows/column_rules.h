// Names of columns and messages in a data file that uses other names than lft.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/io/json.h"

namespace lft::data {

struct ColumnRules {
  /// From lft's name (those of the recipe's data.columns) to the column of the file. "": the file
  /// has no such column, and a column of that name is not used.
  std::map<std::string, std::string> names = {};
  /// LLaMA-Factory's role_tag, content_tag, user_tag, assistant_tag and system_tag; empty: none.
  std::map<std::string, std::string> tags = {};
  std::set<std::string> of_file = {};  // the names that the recipe does not map
  bool operator==(const ColumnRules&) const = default;
};

/// The rules of a file; those of the recipe take precedence.
ColumnRules combined(ColumnRules of_file, const ColumnRules& of_recipe);

io::Json to_json(const ColumnRules& rules);

/// Renames the columns of a row, and the keys and roles of its messages, to lft's names. A column
/// that the row lacks is ignored. Lists that are JSON texts become lists. Returns the columns that
/// another one replaces.
std::vector<std::string> rename_columns(io::Json& row, const ColumnRules& rules);
void rename_columns(nlohmann::ordered_json& row, const ColumnRules& rules);

}  // namespace lft::data
