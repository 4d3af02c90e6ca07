#include "src/recipe/field_help.h"

#include <algorithm>
#include <type_traits>

#include "kernels/common/error.h"
#include "src/base/terminal.h"
#include "src/base/text.h"
#include "src/recipe/recipe_fields.h"
#include "src/recipe/strict_reader.h"
#include "src/recipe/value_text.h"

namespace lft::recipe {
namespace {

const char* type_text(int64_t) { return "whole number"; }
const char* type_text(double) { return "number"; }
const char* type_text(bool) { return "true or false"; }
const char* type_text(const Shuffle&) { return "true, false or blocks"; }
const char* type_text(const std::string&) { return "text"; }
template <class E>
const char* type_text(const Choice<E>&) {
  return "text";
}
const char* type_text(const TrainData&) { return "text, or list of {path, image_root, weight}"; }
const char* type_text(const std::vector<std::string>&) { return "list of text"; }
const char* type_text(const std::array<double, 2>&) { return "two numbers"; }
const char* type_text(const Mapping&) { return "a mapping"; }
const char* type_text(const ByPattern<int64_t>&) { return "whole numbers by pattern"; }
const char* type_text(const ByPattern<double>&) { return "numbers by pattern"; }
const char* type_text(const ByPattern<std::string>&) { return "texts by name"; }

struct HelpVisitor : SectionPath {
  std::vector<FieldHelp> fields;

  template <class T>
  void field(const char* key, const T& value, const FieldRule& rule, const char* help) {
    const bool absent = rule.nullable && is_absent(value);
    const bool has_value = !rule.required && !absent;
    fields.push_back({.key = prefix + key,
                      .type = type_text(value),
                      .initial = rule.required ? "required"
                                 : absent      ? "none"
                                               : value_text(value, rule),
                      .has_value = has_value,
                      .range = rule_text(rule, std::is_same_v<T, int64_t>),
                      .help = help});
  }
};

}  // namespace

std::vector<FieldHelp> field_help() {
  HelpVisitor visitor;
  const Recipe defaults;
  visit(visitor, defaults);
  return visitor.fields;
}

std::vector<std::string> field_lines(const std::string& name) {
  constexpr int64_t kWidth = 80;
  const auto wrapped = [](const std::string& text) { return fold("    " + text, kWidth); };
  std::vector<std::string> lines;
  for (const FieldHelp& field : field_help()) {
    const std::string last = field.key.substr(field.key.rfind('.') + 1);
    if (!field.key.starts_with(name) && !last.starts_with(name)) continue;
    lines.push_back(field.key);
    lines.push_back(wrapped(field.type + (field.range.empty() ? "" : ", " + field.range) + "; " +
                            (field.has_value ? "default " : "") + field.initial));
    lines.push_back(wrapped(field.help));
  }
  if (lines.empty())
    refuse(ErrorKind::kUsage, unknown_field(name, field_names()), "lft recipe fields", {},
           "a field, a section, or the beginning of either", "lft recipe fields lists all fields");
  return lines;
}

}  // namespace lft::recipe
