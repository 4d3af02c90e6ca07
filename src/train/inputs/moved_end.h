// What a changed train.max_steps or train.epochs means for a run that is resumed.
#pragma once
#include <string>

#include "src/checkpoint/checkpoint.h"
#include "src/train/inputs/run_settings.h"

namespace lft::train {

/// One line where the run's end has moved since the checkpoint was saved and the learning rate
/// jumps with it, or the checkpoint is past that end. Else empty.
std::string describe_moved_end(const RunSettings& now, const checkpoint::Checkpoint& saved);

}  // namespace lft::train
