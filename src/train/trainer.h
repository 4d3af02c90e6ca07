// A whole run: from a recipe to the adapter, the metrics and the report in its output directory.
#pragma once
#include "src/recipe/recipe.h"

namespace lft {

/// Returns the exit code: 0 when every step was done; 130 or 75 when a signal stopped it behind a step, with the adapter saved.
int train(const Recipe& recipe);

}  // namespace lft
