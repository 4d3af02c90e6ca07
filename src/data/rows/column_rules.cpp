#include "src/data/rows/column_rules.h"

#include <algorithm>
#include <set>

#include "src/base/text.h"
#include "src/data/rows/row_scan.h"

namespace lft::data {
namespace {

constexpr const char *kMessages = "messages", *kConversations = "conversations";

/// Whether another role is read from the column with the name of this one.
bool is_a_column(const ColumnRules& rules, const std::string& name) {
  return std::ranges::any_of(rules.names, [&](const auto& each) { return each.second == name; });
}

/// The key for a list of messages: "conversations" also has LLaVA's "from" and "value".
template <class Value>
std::string key_for(const std::string& role, const Value& value) {
  const bool from = role == kMessages && value.is_array() && !value.empty() &&
                    value[0].is_object() && value[0].contains("from");
  return from ? kConversations : role;
}

template <class Value>
std::vector<std::string> rename(Value& row, const ColumnRules& rules) {
  std::vector<std::string> replaced;
  Value moved = Value::object();
  const auto replace = [&](const std::string& name) {
    if (!row.contains(name) || is_a_column(rules, name)) return;
    if (!row[name].empty() && row[name] != "") replaced.push_back(name);
    row.erase(name);
  };
  for (const auto& [role, column] : rules.names) {
    const bool is = !column.empty() && row.contains(column);
    if (is) moved[key_for(role, row[column])] = row[column];
    if (is || column.empty()) replace(role);
    if (is && role == kMessages) replace(kConversations);
  }
  for (const auto& [role, column] : rules.names) row.erase(column);
  row.update(moved);
  return replaced;
}

/// Renames the keys and the role of a message to OpenAI's.
template <class Value>
void rename_message(Value& message, const std::map<std::string, std::string>& tags) {
  const std::string role_key = tags.at("role_tag"), text_key = tags.at("content_tag");
  if (!message.is_object() || !message.contains(role_key) || !message.contains(text_key)) return;
  Value role = message[role_key], text = message[text_key];
  for (const char* name : {"user", "assistant", "system"})
    if (role == tags.at(std::string(name) + "_tag")) role = name;
  message.erase(role_key);
  message.erase(text_key);
  message["role"] = std::move(role);
  message["content"] = std::move(text);
}

/// Of a list of messages, or of one message.
template <class Value>
void rename_messages(Value& messages, const std::map<std::string, std::string>& tags) {
  if (!messages.is_array()) return rename_message(messages, tags);
  for (Value& message : messages) rename_message(message, tags);
}

template <class Value>
std::vector<std::string> rename_all(Value& row, const ColumnRules& rules) {
  if (!row.is_object()) return {};
  std::vector<std::string> replaced;
  if (!rules.names.empty()) replaced = rename(row, rules);
  for (const char* key : {kMessages, kConversations, "chosen", "rejected"})
    if (!rules.tags.empty() && row.contains(key)) rename_messages(row[key], rules.tags);
  return replaced;
}

/// A list that is stored as a JSON text, as in a CSV file. Other texts stay as they are.
void read_list_text(io::Json& value, const std::string& where) {
  if (!value.is_string() || !trimmed(value.get_ref<const std::string&>()).starts_with('[')) return;
  try {
    io::Json list = io::parse_json(value.get_ref<const std::string&>(), where, kRowLimits);
    if (list.is_array()) value = std::move(list);
  } catch (const Error&) {  // a file name, or Python's text of a list, which its reader refuses
  }
}

}  // namespace

ColumnRules combined(ColumnRules of_file, const ColumnRules& of_recipe) {
  for (const auto& [role, column] : of_file.names) of_file.of_file.insert(role);
  for (const auto& [role, column] : of_recipe.names) {
    of_file.names[role] = column;
    of_file.of_file.erase(role);
  }
  return of_file;
}

io::Json to_json(const ColumnRules& rules) {
  return {{"names", rules.names}, {"tags", rules.tags}};
}

std::vector<std::string> rename_columns(io::Json& row, const ColumnRules& rules) {
  std::vector<std::string> replaced = rename_all(row, rules);
  for (const char* name : {"image", "images", "choices", "options", "answers", "history"})
    if (row.is_object() && row.contains(name)) read_list_text(row[name], name);
  return replaced;
}

void rename_columns(nlohmann::ordered_json& row, const ColumnRules& rules) {
  rename_all(row, rules);
}

}  // namespace lft::data
