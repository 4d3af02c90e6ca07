// What validate says of a row of a pair beyond its two sides.
#pragma once
#include <vector>

#include "src/data/rows/row.h"
#include "src/debug/data/validate.h"

namespace lft::debug {

/// Equal answers, answers that differ only in white space, a chosen answer of more than three times
/// the rejected one's length, different prompts. Empty for a row without a rejected side.
std::vector<DataProblem> pair_problems(const data::Row& row);

}  // namespace lft::debug
