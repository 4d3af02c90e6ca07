// How far adapters can change the adapted weights, judged by the size of their matrices.
#pragma once
#include <limits>
#include <string>

#include "models/family/family.h"
#include "src/recipe/recipe.h"

namespace lft::train {

/// An upper bound of the largest change of any element of any adapted weight, relative to that
/// weight's largest element, if every element of A and B has changed by at most `moves`: scale
/// ||B_o|| ||A_i|| / max |W| for the row and column with the largest value. Infinite if unknown:
/// without adapters, with quantized weights, for adapters that are not a plain product. Layers
/// after the first that reaches `enough` are skipped.
double adapter_reach(family::Model& model, double moves,
                     double enough = std::numeric_limits<double>::infinity());

/// Why no step of the run can have an effect: the initial adapters, changed by all learning rates
/// in one direction, are rounded away in the weights. Empty if they are not.
std::string judge_reach(family::Model& model, const recipe::Recipe& recipe, int64_t steps,
                        at::ScalarType compute);

}  // namespace lft::train
