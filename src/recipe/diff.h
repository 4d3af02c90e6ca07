// Compares the fields of two recipes, and whether a run may be resumed with the change.
#pragma once
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::recipe {

struct RecipeChange {
  std::string key, before, after;  // values as written in a recipe
  bool may_change = false;         // on resume
  bool trains = false;             // affects which tensors are trained, or their effect
};
/// In the order of the recipe's fields.
std::vector<RecipeChange> changed_fields(const Recipe& before, const Recipe& after);

}  // namespace lft::recipe
