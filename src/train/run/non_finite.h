// Handles a non-finite step: by the run's single recovery, or by ending the run. At that point
// nothing has been updated.
#pragma once
#include <optional>

#include "src/train/record/run_files.h"
#include "src/train/run/run.h"

namespace lft::train {

struct NonFiniteStep {
  const data::StepSamples& samples;
  const StepOutcome& outcome;
  const StepState& before;  // at the start of the step
  const StepHashes& hashes;
  const std::optional<data::StepSamples>& last_good;  // of the last step taken in this process
  int64_t last_good_step = 0;
};

/// Writes an incident folder and an event in both cases. Throws kNumeric if the run cannot
/// continue; else the run continues in FP32 (recovery.h).
void handle_non_finite_step(Run& run, RunFiles& files, const StepOptions& options,
                            const NonFiniteStep& step);

}  // namespace lft::train
