// The options of a run's steps from its recipe, and the graphs of its passes.
#pragma once
#include <memory>

#include "src/train/run/run.h"
#include "src/train/step/graph_passes.h"

namespace lft::train {

StepOptions run_step_options(const Run& run);
/// The passes of a run whose packed micro-batches are filled up; null if they are not, and after a
/// recovery.
std::unique_ptr<GraphPasses> make_graph_passes(Run& run);

}  // namespace lft::train
