// The batch of `lft debug overfit`, and the lowest loss that is possible on it.
#pragma once
#include "src/data/loader.h"
#include "src/train/run/run.h"

namespace lft::debug {

/// The batch of overfit().
data::StepSamples overfit_batch(const train::Run& run);

/// The lowest possible loss in nats per supervised token: rows with the same images and prefix may
/// continue differently.
double loss_floor(const data::StepSamples& batch);

}  // namespace lft::debug
