// Runs the largest micro-batch of the run, forward and backward, before the first step, so that an
// out-of-memory error appears immediately.
#pragma once
#include <string>
#include <vector>

#include "src/train/memory/memory_watch.h"
#include "src/train/run/run.h"
#include "src/train/run/step_options.h"

namespace lft::train {

struct Rehearsal {
  bool ran = false;   // false: the proof's probe was as large and images need little memory, or
                      // no sample is left
  int64_t step = 0;   // of this micro-batch, from 1
  size_t rows = 0;    // without bad samples
  size_t tokens = 0;  // of the longest row; of all rows if they are packed
  bool packed = false;
  size_t images = 0;
  int64_t peak = 0;  // bytes of tensors, including those allocated before
  std::vector<std::string> ids;
};

/// Runs like the next step: same precision, dropout, recomputation, gradients and copies. On a CPU
/// the memory of images that are read concurrently is added. No parameter, gradient, moment,
/// generator or loader state changes; a non-finite value is left to the step. Measures lengths if
/// they are not measured, and sets run.worst. `proved`: the proof has run its probe in this
/// process. Rethrows out-of-memory errors.
Rehearsal rehearse_worst(Run& run, const StepOptions& options, MemoryWatch& watch, bool proved);

/// One line for the plan.
std::string describe_rehearsal(const Rehearsal& rehearsal);

}  // namespace lft::train
