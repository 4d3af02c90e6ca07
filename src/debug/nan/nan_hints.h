// Causes of values that are not finite, from the run's metrics.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "src/debug/nan/nan.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

/// A step line of a run's metrics.
struct StepFigures {
  int64_t step = 0;
  double loss = NAN, lr = NAN, grad_norm = NAN;
};

/// Step lines before `step` of a metrics.jsonl, or nothing without the file. Incomplete lines are
/// skipped.
std::vector<StepFigures> read_history(const std::string& path, int64_t before_step);

/// Hints at a learning rate that is too high and at missing clipping, from the run's history.
/// `largest_weight` is the largest of all trainables.
std::vector<train::Hint> run_hints(const recipe::Recipe& recipe,
                                   const std::vector<StepFigures>& history,
                                   const train::NamedTensor& largest_weight);

}  // namespace lft::debug
