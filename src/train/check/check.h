// Everything a run does before its first step, without writing anything.
#pragma once
#include "src/recipe/recipe.h"

namespace lft::train {

/// Prints plan, trainability proof (the second step's too) and memory plan. 0: the recipe will
/// train; else the error or the exit code that train would end with.
int check(const recipe::Recipe& recipe);

}  // namespace lft::train
