// The memory of passes without gradients: an evaluation between two steps, and the KL divergence of
// a step.
#pragma once
#include "src/train/inputs/run_settings.h"
#include "src/train/memory/moment.h"

namespace lft::train {

/// The passes without gradients, and the answers of a metric with their cache of keys and values.
/// `gradients`: bytes of those of all trainables. `alone`: features are computed image by image.
/// Nothing on a GPU, where it is not counted.
Moment evaluation_moment(const RunSettings& settings, double gradients, bool alone);
/// The passes of Objective::uses_kl() over a micro-batch, while a copy of all trained values
/// (`trained` bytes) waits for their end.
Moment kl_moment(const RunSettings& settings, const PassShape& shape, double trained);

}  // namespace lft::train
