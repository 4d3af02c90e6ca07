// Work shared by the processes of a run outside its steps: reading or writing by one process for
// all, and division of work.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "src/dist/ranks.h"
#include "src/infer/evaluate.h"
#include "src/train/run/run.h"
#include "src/train/run/trainer.h"

namespace lft::train {

/// lft train in one of several processes: waits for the others, reads the recipe, trains. Only rank
/// 0 logs and writes files. Every process returns the same code, or throws the same error.
int train_as(const dist::Place& place, const std::function<recipe::Recipe()>& read,
             TrainOptions options);

/// The first signal that any process has received; 0: none.
int agreed_signal(dist::Ranks& ranks);

/// open_inputs() with the rank of this process. Lengths are measured if rows are packed, because
/// all processes must form the same batches. kUsage, with the value to set, if a process would
/// never have a micro-batch.
RunInputs open_shared_inputs(const recipe::Recipe& recipe, const TrainOptions& options);

/// Sends the checkpoint that rank 0 has read to all processes.
void share_checkpoint(dist::Ranks& ranks, std::optional<checkpoint::Checkpoint>& checkpoint);
/// Sends rank 0's weights to all processes.
void share_trainables(dist::Ranks& ranks, Run& run);

/// infer::evaluate() with its batches divided among the processes: the same records in the same
/// order, and the same figures.
infer::EvalResult evaluate_shared(dist::Ranks& ranks, Run& run, const data::Dataset& rows,
                                  const infer::EvalOptions& options);

/// All samples of step `step` (from 1), read again in this process.
data::StepSamples read_step(const Run& run, int64_t step);

}  // namespace lft::train
