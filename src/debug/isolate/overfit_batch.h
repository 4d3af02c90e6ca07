// The one batch of the overfit exercise, and how well any model could know it.
#pragma once
#include "src/train/run/run.h"

namespace lft::debug {

/// See overfit().
data::StepSamples overfit_batch(const train::Run& run);

/// Nats a supervised token that no model gets below: rows with the same images that agree up to a
/// token and go on differently.
double loss_floor(const data::StepSamples& batch);

}  // namespace lft::debug
