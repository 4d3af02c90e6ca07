// What the processes of a run do together outside its steps: what one reads or writes for all, and
// what each does a part of.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "src/dist/ranks.h"
#include "src/infer/evaluate.h"
#include "src/train/run/run.h"
#include "src/train/run/trainer.h"

namespace lft::train {

/// lft train in a process whose starter says that it is one of several: waits for the others, reads
/// the recipe, trains. Only rank 0 speaks and writes. Every process returns the same code, or
/// throws the same error.
int train_as(const dist::Place& place, const std::function<recipe::Recipe()>& read,
             TrainOptions options);

/// The signal that a process has got; 0: none has.
int agreed_signal(dist::Ranks& ranks);

/// open_inputs(), with the place of this process. Lengths are measured where rows are packed: all
/// cut them alike, before they are read. kUsage where a process would never have a micro-batch,
/// with the value to set.
RunInputs open_shared_inputs(const recipe::Recipe& recipe, const TrainOptions& options);

/// What rank 0 has read of the disk is everybody's.
void share_checkpoint(dist::Ranks& ranks, std::optional<checkpoint::Checkpoint>& checkpoint);
/// Rank 0's weights are everybody's.
void share_trainables(dist::Ranks& ranks, Run& run);

/// As infer::evaluate(), of which each process computes some batches: the same records in the same
/// order, and the same figures. `each` sees this process's own.
infer::EvalResult evaluate_shared(dist::Ranks& ranks, Run& run, const data::Dataset& rows,
                                  const infer::EvalOptions& options,
                                  const std::function<void(const infer::EvalRecord&)>& each);

/// All samples of step `step` (from 1), read again by this process alone.
data::StepSamples read_step(const Run& run, int64_t step);

}  // namespace lft::train
