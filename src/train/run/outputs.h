// The result of a run: the adapter, the parts or the whole model.
#pragma once
#include "src/train/run/run.h"

namespace lft::train {

/// Writes the adapter directory, or model/ after full fine-tuning. Replaces the output of an
/// earlier process of the run.
void save_outputs(Run& run);

/// Loads the weights of the best evaluation into the model (load_best() of saved_steps.h).
void take_best(Run& run);

}  // namespace lft::train
