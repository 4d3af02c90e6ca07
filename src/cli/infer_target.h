// Base and adapter of a command from one argument: a run's folder, an adapter, a model directory or
// a recipe.
#pragma once
#include <string>

#include "src/cli/infer.h"
#include "src/recipe/recipe.h"

namespace lft::cli {

enum class TargetKind { kNone, kRun, kAdapter, kModel, kRecipe };
/// kUsage if it is neither a folder nor a recipe.
TargetKind target_kind(const std::string& target);

/// Sets model and adapter from options.target and the recorded base of an adapter. --model and
/// --adapter take precedence: with a run or a recipe, --model is used without an adapter unless
/// --adapter is given. kUsage if a run has no result yet, or if nothing was named.
void settle_target(InferOptions& options);

/// The same for a recipe: the output of its run. kUsage if there is none.
void take_trained(const recipe::Recipe& recipe, InferOptions& options);

}  // namespace lft::cli
