// A recipe on the first rows of its data: a whole run within minutes, with what it has learnt and
// what carries over.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::debug {

struct SubsetReport {
  int code = 0;  // train's
  std::string output_dir;
  int64_t rows = 0, steps = 0;
  std::string held_out;            // where the held-out rows are from; empty: there are none
  double first = NAN, last = NAN;  // training loss, a supervised token: of the first step, and the
                                   // mean of the last epoch
  double held_out_first = NAN, held_out_last = NAN;
};

/// Trains on the first `rows` rows (all, where there are fewer) into
/// <output_dir>/debug-subset-<rows>; the recipe is otherwise unchanged. The rows are written there
/// as prepared data. Held out: data.eval or data.eval_share; else as many rows after the first.
/// kUsage where that folder contains a run already; otherwise train's errors.
SubsetReport train_subset(const recipe::Recipe& recipe, int64_t rows);

/// What it came to, to print.
std::vector<std::string> subset_lines(const SubsetReport& report);

}  // namespace lft::debug
