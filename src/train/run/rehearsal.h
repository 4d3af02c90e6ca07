// Runs the largest micro-batch of the whole run, forward and backward, before its first step, so
// that an out-of-memory error appears immediately.
#pragma once
#include <string>
#include <vector>

#include "src/train/memory/memory_watch.h"
#include "src/train/run/run.h"
#include "src/train/run/step_options.h"

namespace lft::train {

struct Rehearsal {
  bool ran = false;   // false: the proof's probe was as large and images take next to nothing, or
                      // no sample is left
  int64_t step = 0;   // whose micro-batch, from 1
  size_t rows = 0;    // bad samples left out
  size_t tokens = 0;  // of the longest row; where rows are packed, of all
  bool packed = false;
  size_t images = 0;
  int64_t peak = 0;  // bytes of tensors, what was held before included
  std::vector<std::string> ids;
};

/// As the next step would run it: same precision, dropout, recomputation, gradients and copies. On
/// a CPU what images may take that are read at the same time is added. No
/// parameter, gradient, moment, generator or loader state changes; a value that is not finite is
/// the step's business. Measures lengths where they are not measured, and sets run.worst. `proved`:
/// the proof has run its probe in this process. Throws what runs out of memory.
Rehearsal rehearse_worst(Run& run, const StepOptions& options, MemoryWatch& watch, bool proved);

/// One line for the plan.
std::string describe_rehearsal(const Rehearsal& rehearsal);

}  // namespace lft::train
