// The parts of a run, and their conversion to and from a checkpoint.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/inputs/run_model.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/norms/norm_watch.h"
#include "src/train/optim/loss_scaler.h"
#include "src/train/proof/adapter_watch.h"
#include "src/train/proof/proof.h"
#include "src/train/record/best_eval.h"
#include "src/train/record/run_hash.h"
#include "src/train/step/step.h"

namespace lft::train {

/// What a run consists of: the recipe's settings, the opened inputs and the state of training. Each
/// base is what a function needs that runs earlier.
struct Run : RunInputs {
  RunModel model;
  Optimizer optimizer;
  LossScaler scaler;
  Schedule schedule;
  StepState state = {};
  std::string id = {};                            // of the run, in all processes
  AdapterWatch watch = AdapterWatch();            // until every A has had a gradient
  NormWatch norms = {};                           // their trends
  Probe probe = {};                               // the proof's input
  std::vector<std::string> skipped_samples = {};  // skipped bad samples, with the reason
  int64_t tokens = 0;
  double last_loss = NAN;
  BestEval best = {};
  LastEval last_eval = {};
  std::optional<MicroBatchShape> worst = {};  // of the whole run, after the rehearsal
  std::string hash = first_run_hash();        // rolling, over the steps so far
  std::shared_ptr<const objective::Objective> objective = make_objective(recipe);

  RunInputs& inputs() { return *this; }
};

/// Where a resumed run continues.
struct Restart {
  std::optional<checkpoint::Checkpoint> checkpoint;  // none yet: from the beginning
  bool exact = true;  // same library, device and processor as the process that saved it
};
/// The newest checkpoint that verifies and matches the recipe and its inputs (kCheckpoint
/// otherwise), which rank 0 reads for all; sets the thread count to the stored one, which the order
/// of sums depends on. Notices go to inputs.notices.
Restart find_restart(RunInputs& inputs, dist::Ranks& ranks = dist::alone());

/// A run at step 0 from opened inputs and a fresh model, with a new id.
Run make_run(RunInputs inputs);

/// The sample whose loss a checkpoint stores, as a batch: the probe's first with a supervised
/// token.
family::Batch probe_batch(const Run& run);

/// One line about the loss before training; warns if it is suspicious. kNumeric if the recipe
/// expects another first loss.
std::string describe_model_start(Run& run, const TrainabilityReport& proof);

/// kNumeric if the loss before training is not finite and the run would not repeat the step in
/// FP32.
void refuse_non_finite_start(const Run& run, const TrainabilityReport& proof);

/// The values that a checkpoint must match: base, data, images, processor, tokenizer. Also the
/// number of processes, which may differ. base_digest: RunModel's.
io::Json run_identity(RunInputs& inputs, const std::string& base_digest);

/// The complete state of the run; `metrics_bytes` is the size of metrics.jsonl up to this step.
checkpoint::Checkpoint snapshot(Run& run, uint64_t metrics_bytes);

/// Loads a checkpoint into a run from make_run with the same recipe, then recomputes the loss of
/// the probe sample: kCheckpoint unless it has the stored bits (with `exact` false, after a change
/// of library or processor: the stored value within the precision's rounding). `restored` runs
/// before that; a hook for tests. Returns the stored size of metrics.jsonl.
uint64_t restore(Run& run, const checkpoint::Checkpoint& checkpoint, bool exact,
                 const std::function<void(family::Model&)>& restored);

}  // namespace lft::train
