// The model of a run without its weights, for what is counted and not run.
#pragma once
#include "src/train/setup.h"

namespace lft {

/// What build_model() makes, on the meta device: names, shapes, dtypes, adapters, what is trained. No weight is read.
RunModel run_shapes(const RunInputs& inputs);

}  // namespace lft
