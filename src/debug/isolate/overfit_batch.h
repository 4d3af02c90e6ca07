// The batch of `lft debug overfit`, and the lowest loss that is possible on it.
#pragma once
#include "src/data/loader.h"
#include "src/train/run/run.h"

namespace lft::debug {

/// The one batch: see overfit().
data::StepSamples overfit_batch(const train::Run& run);

/// Nats a supervised token that no model gets below: rows with the same images that agree up to a
/// token and go on differently.
double loss_floor(const data::StepSamples& batch);

}  // namespace lft::debug
