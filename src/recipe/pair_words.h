// What the rows of a recipe are, and how they are counted in messages.
#pragma once
#include <cstdint>
#include <string>

#include "src/recipe/recipe.h"

namespace lft::recipe {

/// Whether the rows of its objective are pairs of answers.
bool learns_from_pairs(const Recipe& recipe);
/// Whether they have a label of their answer (KTO).
bool learns_from_labels(const Recipe& recipe);

/// "8 samples", "1 sample"; of pairs "8 pairs".
std::string samples_text(const Recipe& recipe, int64_t count);
/// The same for "rows".
std::string rows_text(const Recipe& recipe, int64_t count);

}  // namespace lft::recipe
