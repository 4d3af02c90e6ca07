// The suspects of overfit that are settings of the recipe, tried on new models.
#pragma once
#include <vector>

#include "src/debug/isolate/overfit.h"

namespace lft::debug {

/// Checks every unusual setting of `asked`: it is a cause if the loss falls much more with the
/// usual value. If there are several, each is tried with usual values of the others. `start` is the
/// loss before the first step. The inputs of `run` are borrowed.
std::vector<OverfitSuspect> suspect_settings(train::Run& run, const recipe::Recipe& asked,
                                             const data::StepSamples& batch,
                                             const train::StepOptions& step, double start);

}  // namespace lft::debug
