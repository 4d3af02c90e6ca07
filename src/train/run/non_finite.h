// Handles a non-finite step: by the run's one recovery, or by ending the run. Nothing has been
// updated by then.
#pragma once
#include <optional>

#include "src/train/record/run_files.h"
#include "src/train/run/run.h"

namespace lft::train {

struct NonFiniteStep {
  const data::StepSamples& samples;
  const StepOutcome& outcome;
  const StepState& before;  // as the step found it
  const StepHashes& hashes;
  const std::optional<data::StepSamples>& last_good;  // of the last step taken in this process
  int64_t last_good_step = 0;
};

/// Leaves an incident folder and an event either way. Throws kNumeric where the run cannot
/// continue; else the run continues in FP32 (recovery.h).
void handle_non_finite_step(Run& run, RunFiles& files, const StepOptions& options,
                            const NonFiniteStep& step);

}  // namespace lft::train
