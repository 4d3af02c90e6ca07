// The objective of a recipe.
#pragma once
#include <memory>

#include "models/objective/objective.h"
#include "src/recipe/pair_words.h"
#include "src/recipe/recipe.h"

namespace lft::train {

std::shared_ptr<const objective::Objective> make_objective(const recipe::Recipe& recipe);

using recipe::learns_from_labels;
using recipe::learns_from_pairs;

/// The rows of a step's global batch, as far as the recipe knows them (train.grad_accum: auto may
/// take fewer).
int64_t rows_of_step(const recipe::Recipe& recipe);

}  // namespace lft::train
