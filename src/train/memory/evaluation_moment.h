// The memory of an evaluation between two steps.
#pragma once
#include "src/train/inputs/run_settings.h"
#include "src/train/memory/moment.h"

namespace lft::train {

/// The passes without gradients, and the answers of a metric with their cache of keys and values.
/// `gradients`: bytes of those of all trainables. Nothing on a GPU, where it is not counted.
Moment evaluation_moment(const RunSettings& settings, double gradients);

}  // namespace lft::train
