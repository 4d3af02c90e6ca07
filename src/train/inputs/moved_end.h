// Describes the effect of a changed train.max_steps or train.epochs on a resumed run.
#pragma once
#include <string>

#include "src/checkpoint/checkpoint.h"
#include "src/train/inputs/run_settings.h"

namespace lft::train {

/// One line if the run's end has moved since the checkpoint and the learning rate jumps because of
/// it, or if the checkpoint is past the new end. Else empty.
std::string describe_moved_end(const RunSettings& now, const checkpoint::Checkpoint& saved);

}  // namespace lft::train
