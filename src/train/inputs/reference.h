// The reference of an objective of preferences: the model as it is before the first step.
#pragma once
#include "src/dist/ranks.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/inputs/run_model.h"

namespace lft::train {

/// Computes the references of data.train and data.eval (Dataset::references) with this model, which
/// has its initial weights, unless <output_dir>/index has them. Each row is a separate batch, so
/// that they do not depend on how batches are made. For the KL divergence, which depends on the
/// order of rows, it keeps the initial values (RunModel::initial) and finds the mismatched rows of
/// data.eval. Nothing if the objective uses no reference.
void find_references(RunInputs& inputs, RunModel& model, dist::Ranks& ranks);
/// The same for the rows of some steps alone, from the one after `first` on, for commands that take
/// no more; keeps nothing.
void find_step_references(RunInputs& inputs, RunModel& model, int64_t steps, int64_t first = 0);

}  // namespace lft::train
