// How far adapters can change the weights they sit on, by the size of their matrices alone.
#pragma once
#include <limits>
#include <string>

#include "models/family/family.h"
#include "src/recipe/recipe.h"

namespace lft::train {

/// An upper bound of the largest change of any element of any adapted weight, relative to that
/// weight's largest element, when every element of A and B has moved on by at most `moves`:
/// scale ||B_o|| ||A_i|| / max |W| of the farthest row and column. Infinite where that is not
/// known: without adapters, with quantized weights, of adapters that are more than a product.
/// Layers after the first that reaches `enough` are not looked at.
double adapter_reach(family::Model& model, double moves,
                     double enough = std::numeric_limits<double>::infinity());

/// Why no step of the run can show: the adapters of its start, moved by all learning rates in one
/// direction, are lost next to the weights. Empty where they are not.
std::string judge_reach(family::Model& model, const recipe::Recipe& recipe, int64_t steps,
                        at::ScalarType compute);

}  // namespace lft::train
