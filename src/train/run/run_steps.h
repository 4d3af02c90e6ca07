// The steps of a run from its present state to its end, with checkpoints, records, evaluations and
// report.
#pragma once
#include <cstdint>

#include "src/train/machine/peak_memory.h"
#include "src/train/memory/out_of_memory.h"
#include "src/train/run/run.h"
#include "src/train/run/trainer.h"

namespace lft::train {

/// Takes the steps until the run is done or stopped and returns the exit code of train().
/// `metrics_bytes`: the size of metrics.jsonl up to the present step. `resumed`: the run's state
/// comes from a checkpoint.
int run_steps(Run& run, RunMemory& memory, const PeakMemory& peak, const TrainOptions& options,
              uint64_t metrics_bytes, bool resumed);

}  // namespace lft::train
