// Checks that the output directory is suitable for a run.
#pragma once
#include "src/recipe/recipe.h"

namespace lft::train {

/// kUsage if the output directory is inside an input or, unless `resume`, contains a run; kResource
/// if it cannot be written.
void check_output_dir(const recipe::Recipe& recipe, bool resume);

/// Whether the output directory contains a run, or part of one.
bool contains_run(const recipe::Recipe& recipe);

/// kResource unless `keep` + 1 checkpoints and the outputs fit on the disk of the output directory,
/// where those of the run that is resumed count as free space.
void check_disk_space(const recipe::Recipe& recipe, int64_t trainable_parameters);

}  // namespace lft::train
