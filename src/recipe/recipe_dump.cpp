#include <string>

#include "src/recipe/field_help.h"
#include "src/recipe/recipe.h"
#include "src/recipe/recipe_fields.h"
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

}  // namespace

std::string dump_recipe(const Recipe& recipe) {
  Dumper dumper;
  const Recipe asked = as_asked(recipe);
  visit(dumper, asked);
  return dumper.text;
}

std::string recipe_reference() {
  std::string text = "| key | type | default | range | meaning |\n|---|---|---|---|---|\n";
  for (const FieldHelp& field : field_help()) {
    const std::string initial = field.has_value ? "`" + field.initial + "`" : field.initial;
    text += "| `" + field.key + "` | " + field.type + " | " + initial + " | " + field.range +
            " | " + field.help + " |\n";
  }
  return text;
}

}  // namespace lft::recipe
