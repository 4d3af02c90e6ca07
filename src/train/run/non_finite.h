// What a step that is not finite leads to: the run's one recovery, or its end. Nothing has moved by
// then.
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

/// Leaves an incident folder and an event either way. Throws kNumeric where the run cannot go on;
/// else it goes on in FP32 (recovery.h).
void answer_non_finite(Run& run, RunFiles& files, const StepOptions& options,
                       const NonFiniteStep& step);

}  // namespace lft::train
