#include <array>
#include <string>
#include <vector>

#include "src/recipe/recipe.h"
#include "src/recipe/recipe_fields.h"
#include "src/recipe/strict_reader.h"
#include "src/recipe/value_text.h"

namespace lft::recipe {

namespace {

struct Dumper {
  std::string text, indent;

  template <class T>
  void field(const char* key, const T& value, const FieldRule& rule, const char*) {
    text += indent + key + ": " + value_text(value, rule) + "\n";
  }
  template <class Body>
  void section(const char* key, Body body) {
    text += indent + key + ":\n";
    indent += "  ";
    body();
    indent.resize(indent.size() - 2);
  }
};

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

struct ReferenceTable : SectionPath {
  std::string text = "| key | type | default | range | meaning |\n|---|---|---|---|---|\n";

  template <class T>
  void field(const char* key, const T& value, const FieldRule& rule, const char* help) {
    const bool absent = rule.nullable && is_absent(value);
    const std::string initial = rule.required ? "required"
                                : absent      ? "none"
                                              : "`" + value_text(value, rule) + "`";
    const bool whole = std::is_same_v<T, int64_t>;
    text += "| `" + prefix + key + "` | " + type_text(value) + " | " + initial + " | " +
            rule_text(rule, whole) + " | " + help + " |\n";
  }
};

}  // namespace

std::string dump_recipe(const Recipe& recipe) {
  Dumper dumper;
  const Recipe asked = as_asked(recipe);
  visit(dumper, asked);
  return dumper.text;
}

std::string recipe_reference() {
  ReferenceTable table;
  const Recipe defaults;
  visit(table, defaults);
  return table.text;
}

}  // namespace lft::recipe
