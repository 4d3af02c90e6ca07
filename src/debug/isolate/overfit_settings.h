// The suspects of overfit that are settings of the recipe, tried on fresh models.
#pragma once
#include <vector>

#include "src/debug/isolate/overfit.h"

namespace lft::debug {

/// Every odd setting of `asked`: guilty where steps on the batch fall with its cure as they are
/// nowhere near falling without. With several, each is tried beside the cures of the others.
/// `start`: the loss before the first step. The inputs of `run` are borrowed.
std::vector<OverfitSuspect> suspect_settings(train::Run& run, const recipe::Recipe& asked,
                                             const data::StepSamples& batch,
                                             const train::StepOptions& step, double start);

}  // namespace lft::debug
