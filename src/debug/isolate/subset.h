// Trains a recipe on the first rows of its data: a complete run in minutes, with its training and
// held-out loss.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::debug {

struct SubsetReport {
  int code = 0;  // train's exit code
  std::string output_dir;
  int64_t rows = 0, steps = 0;
  std::string held_out;            // source of the held-out rows; empty: none
  double first = NAN, last = NAN;  // training loss per supervised token: of the first step, and the
                                   // mean of the last epoch
  double held_out_first = NAN, held_out_last = NAN;
};

/// Trains on the first `rows` rows (or all, if there are fewer) with output in
/// <output_dir>/debug-subset-<rows>; the recipe is otherwise unchanged. The rows are written there
/// as prepared data. Held-out rows are data.eval or data.eval_share, otherwise the same number of
/// following rows. kUsage if that directory contains a run; otherwise train's errors.
SubsetReport train_subset(const recipe::Recipe& recipe, int64_t rows);

/// The result as text.
std::vector<std::string> subset_lines(const SubsetReport& report);

}  // namespace lft::debug
