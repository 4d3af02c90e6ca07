// Causes of values that are not finite, from the run's metrics.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "src/debug/nan/nan.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

/// One line of a run's metrics.
struct StepFigures {
  int64_t step = 0;
  double loss = NAN, lr = NAN, grad_norm = NAN;
};

/// Step lines before `step` of a metrics.jsonl; nothing where there is no such file. Lines that are
/// not whole are left out.
std::vector<StepFigures> read_history(const std::string& path, int64_t before_step);

/// Learning rate too high (with or without warm-up) and missing clipping, from how the run went.
/// `largest_weight`: of all trainables.
std::vector<train::Hint> run_hints(const recipe::Recipe& recipe,
                                   const std::vector<StepFigures>& history,
                                   const train::NamedTensor& largest_weight);

}  // namespace lft::debug
