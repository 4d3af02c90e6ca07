// The objective of a recipe.
#pragma once
#include <memory>

#include "models/objective/objective.h"
#include "src/recipe/recipe.h"

namespace lft::train {

std::shared_ptr<const objective::Objective> make_objective(const recipe::Recipe& recipe);

/// Whether its rows are pairs of answers.
bool learns_from_pairs(const recipe::Recipe& recipe);

}  // namespace lft::train
