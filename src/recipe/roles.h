// Lists of recipe fields by purpose, derived from recipe_fields.h.
#pragma once
#include <string>
#include <vector>

#include "src/recipe/recipe_fields.h"

namespace lft::recipe {

/// The optional parts of a run in the order of Part, each with its name in reports.
struct NamedPart {
  Part part;
  const char* name;
};
const std::vector<NamedPart>& optional_parts();
/// Key paths of the fields that belong to a part.
std::vector<std::string> part_fields(Part part);

/// Disables every optional part that has a value for that.
void strip_to_core(Recipe& recipe);
/// Disables everything that hinders a model from fitting a few rows.
void strip_for_fit(Recipe& recipe);
/// Copies the fields of a part.
void copy_part(Recipe& to, const Recipe& from, Part part);

}  // namespace lft::recipe
