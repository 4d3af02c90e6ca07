#include "src/recipe/diff.h"

#include "src/recipe/recipe_fields.h"
#include "src/recipe/value_text.h"

namespace lft::recipe {
namespace {

struct Value {
  std::string key, text;
  bool may_change, trains;
};

/// Visitor: every field's value as text.
struct Values : SectionPath {
  std::vector<Value> list;

  template <class T>
  void field(const char* key, const T& value, const FieldRule& rule, const char*) {
    list.push_back({prefix + key, value_text(value, rule), rule.may_change, rule.trains});
  }
};

std::vector<Value> values_of(const Recipe& recipe) {
  Values values;
  const Recipe asked = as_asked(recipe);
  visit(values, asked);
  return values.list;
}

}  // namespace

std::vector<RecipeChange> changed_fields(const Recipe& before, const Recipe& after) {
  const std::vector<Value> old = values_of(before), fresh = values_of(after);
  std::vector<RecipeChange> changes;
  for (size_t i = 0; i < old.size(); ++i) {
    if (old[i].text != fresh[i].text)
      changes.push_back({old[i].key, old[i].text, fresh[i].text, old[i].may_change, old[i].trains});
  }
  return changes;
}

}  // namespace lft::recipe
