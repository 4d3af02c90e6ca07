// The reference of an objective of pairs: the model as it is before the first step.
#pragma once
#include "src/dist/ranks.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/inputs/run_model.h"

namespace lft::train {

/// Computes the references of data.train and data.eval (Dataset::references) with this model, which
/// has its initial weights, unless <output_dir>/index has them. Each pair is a separate batch, so
/// that they do not depend on how batches are made. Nothing if the objective uses none.
void find_references(RunInputs& inputs, RunModel& model, dist::Ranks& ranks);
/// The same for the rows of the first steps alone, for commands that take no more; keeps nothing.
void find_step_references(RunInputs& inputs, RunModel& model, int64_t steps);

}  // namespace lft::train
