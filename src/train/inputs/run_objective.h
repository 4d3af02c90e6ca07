// The objective of a recipe.
#pragma once
#include <memory>

#include "models/objective/objective.h"
#include "src/recipe/pair_words.h"
#include "src/recipe/recipe.h"

namespace lft::train {

std::shared_ptr<const objective::Objective> make_objective(const recipe::Recipe& recipe);

using recipe::learns_from_pairs;

}  // namespace lft::train
