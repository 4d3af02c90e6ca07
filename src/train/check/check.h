// Runs everything that a run does before its first step, without writing files.
#pragma once
#include "src/recipe/recipe.h"

namespace lft::train {

/// Prints the plan, the trainability proof (also of the second step) and the memory plan. Returns 0
/// if the recipe will train, else the error or exit code that train would end with.
int check(const recipe::Recipe& recipe);

}  // namespace lft::train
